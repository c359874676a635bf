/** Ragged batches: concatenated tokens and where each sequence begins. Never a padding token. */
import { StepTrainError } from '../native/errors.js';
import type { Device } from '../runtime/device.js';
import type { Tensor } from '../runtime/tensor.js';

export interface Sequence {
  readonly ids: ArrayLike<number>;
  /** Default 0, 1, 2, …: restarts at each sequence. */
  readonly positions?: ArrayLike<number>;
  /** 0 on the trunk; a token of branch b sees the trunk before it and its own branch alone. Default all 0. */
  readonly branch?: ArrayLike<number>;
  /** Stable across epochs and batches: keys the dropout mask. */
  readonly rowId?: number;
}

/** A batch on the device. T tokens of B sequences. */
export interface RaggedBatch {
  /** T */
  readonly tokens: number;
  /** Token at which each sequence begins; the last entry is T. */
  readonly offsets: readonly number[];
  /** One more than the largest position. */
  readonly longest: number;
  /** i32 [T] */
  readonly ids: Tensor;
  /** i32 [T] */
  readonly positions: Tensor;
  /** i32 [T] */
  readonly rowIds: Tensor;
  /** i32 [B + 1] */
  readonly cuSeqlens: Tensor;
  /** i32 [T], where any sequence branches. */
  readonly branch: Tensor | undefined;
  dispose(): void;
}

/** Uploads `sequences` one after another. Ids are checked against `vocabSize` and positions against `maxPositions`. */
export function raggedBatch(
  device: Device,
  sequences: readonly Sequence[],
  limits: { readonly vocabSize: number; readonly maxPositions: number },
): RaggedBatch {
  const offsets = [0];
  for (const { ids } of sequences) offsets.push((offsets.at(-1) as number) + ids.length);
  const tokens = offsets.at(-1) as number;
  const ids = new Int32Array(tokens);
  const positions = new Int32Array(tokens);
  const rowIds = new Int32Array(tokens);
  const branches = sequences.some((sequence) => sequence.branch);
  const branch = new Int32Array(branches ? tokens : 0);
  sequences.forEach((sequence, s) => {
    const begin = offsets[s] as number;
    for (let t = 0; t < sequence.ids.length; t++) {
      ids[begin + t] = checked(sequence.ids[t], limits.vocabSize, s, t, 'token id');
      positions[begin + t] = checked(sequence.positions?.[t] ?? t, limits.maxPositions, s, t, 'position');
      rowIds[begin + t] = sequence.rowId ?? s;
      if (sequence.branch) branch[begin + t] = sequence.branch[t] as number;
    }
  });
  const tensors = {
    ids: device.keep(device.tensor(ids)),
    positions: device.keep(device.tensor(positions)),
    rowIds: device.keep(device.tensor(rowIds)),
    cuSeqlens: device.keep(device.tensor(Int32Array.from(offsets))),
    branch: branches ? device.keep(device.tensor(branch)) : undefined,
  };
  return {
    tokens,
    offsets,
    longest: positions.reduce((most, position) => Math.max(most, position + 1), 1),
    ...tensors,
    dispose: () => {
      for (const tensor of Object.values(tensors)) tensor?.dispose();
    },
  };
}

function checked(
  value: number | undefined,
  limit: number,
  sequence: number,
  at: number,
  what: string,
): number {
  if (value !== undefined && Number.isInteger(value) && value >= 0 && value < limit) return value;
  throw new StepTrainError(
    'E_RANGE',
    `sequence ${sequence}: ${what} ${value} at index ${at} is outside 0..${limit - 1}` +
      (what === 'position' ? '; shorten the sequence or raise max_position_embeddings' : ''),
  );
}
