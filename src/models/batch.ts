/** Ragged batches: concatenated tokens and where each sequence begins. No padding tokens. */
import { invalid } from '../native/errors.js';
import { shown } from '../native/shown.js';
import type { Device } from '../runtime/device.js';
import type { Tensor } from '../runtime/tensor.js';

export interface Sequence {
  readonly ids: ArrayLike<number>;
  /** Default 0, 1, 2, …: restarts at each sequence. */
  readonly positions?: ArrayLike<number>;
  /** 0 on the trunk. Only the trunk before it and branch b are visible to a token of branch b. Default all 0. */
  readonly branch?: ArrayLike<number>;
  /** Stable across epochs and batches: keys the dropout mask. */
  readonly rowId?: number;
}

/** T tokens on the device, with the inputs of layers other than attention. */
export interface TokenBatch {
  /** One more than the largest position. */
  readonly longest: number;
  /** i32 [T] */
  readonly ids: Tensor;
  /** i32 [T] */
  readonly positions: Tensor;
  /** i32 [T]: needed for dropout. */
  readonly rowIds?: Tensor;
}

/** A batch on the device. T tokens of B sequences. */
export interface RaggedBatch extends TokenBatch {
  /** T */
  readonly tokens: number;
  /** Token at which each sequence begins; the last entry is T. */
  readonly offsets: readonly number[];
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
    for (const key of ['positions', 'branch'] as const) {
      const length = sequence[key]?.length ?? sequence.ids.length;
      if (length === sequence.ids.length) continue;
      throw invalid(
        `sequence ${s}: expected as many ${key} as token ids, ${sequence.ids.length}, found ${length}`,
      );
    }
    for (let t = 0; t < sequence.ids.length; t++) {
      ids[begin + t] = checked(sequence.ids[t], limits.vocabSize, s, t, 'token id');
      positions[begin + t] = checked(sequence.positions?.[t] ?? t, limits.maxPositions, s, t, 'position');
      rowIds[begin + t] = sequence.rowId ?? s;
      if (sequence.branch) branch[begin + t] = sequence.branch[t] as number;
    }
  });
  return ownBatch(
    { tokens, offsets, longest: positions.reduce((max, position) => Math.max(max, position + 1), 1) },
    {
      ids: device.keep(device.tensor(ids)),
      positions: device.keep(device.tensor(positions)),
      rowIds: device.keep(device.tensor(rowIds)),
      cuSeqlens: device.keep(device.tensor(Int32Array.from(offsets))),
      branch: branches ? device.keep(device.tensor(branch)) : undefined,
    },
  );
}

/** The same batch with references of its own: outlives the disposal of the original. */
export function aliasBatch({
  ids,
  positions,
  rowIds,
  cuSeqlens,
  branch,
  ...extents
}: RaggedBatch): RaggedBatch {
  return ownBatch(extents, {
    ids: ids.alias(),
    positions: positions.alias(),
    rowIds: rowIds.alias(),
    cuSeqlens: cuSeqlens.alias(),
    branch: branch?.alias(),
  });
}

type Extents = Pick<RaggedBatch, 'tokens' | 'offsets' | 'longest'>;
type BatchTensors = Pick<RaggedBatch, 'ids' | 'positions' | 'rowIds' | 'cuSeqlens' | 'branch'>;

function ownBatch(extents: Extents, tensors: BatchTensors): RaggedBatch {
  return {
    ...extents,
    ...tensors,
    dispose: () => {
      for (const tensor of Object.values(tensors)) tensor?.dispose();
    },
  };
}

/**
 * Refuses sequences that a model cannot read, before anything is queued.
 *
 * @param what name of the call, for the error
 * @throws StepTrainError that names sequence, index and value
 */
export function checkSequences(
  what: string,
  sequences: readonly ArrayLike<number>[],
  limits: { readonly vocabSize: number; readonly maxPositions: number },
): void {
  if (!isArrayLike(sequences)) {
    throw invalid(`${what}: expected an array of token sequences, found ${shown(sequences)}`);
  }
  sequences.forEach((ids, s) => {
    if (!isArrayLike(ids)) {
      const hint =
        typeof ids === 'string' ? '; tokenizer.encode makes token ids of a text, promptTokens of a chat' : '';
      throw invalid(`${what}: expected an array of token ids as sequence ${s}, found ${shown(ids)}${hint}`);
    }
    if (ids.length === 0) {
      throw invalid(`${what}: sequence ${s} is empty; give at least one token`);
    }
    if (ids.length > limits.maxPositions) {
      throw invalid(
        `${what}: sequence ${s} has ${ids.length} tokens, and the model reads at most ${limits.maxPositions} ` +
          '(max_position_embeddings); shorten it',
      );
    }
    for (let t = 0; t < ids.length; t++) {
      const id = ids[t];
      if (Number.isInteger(id) && (id as number) >= 0 && (id as number) < limits.vocabSize) continue;
      throw invalid(
        `${what}: sequence ${s}: token id ${id} at index ${t} is not a whole number in 0..${limits.vocabSize - 1}; ` +
          "use the model's own tokenizer",
      );
    }
  });
}

function isArrayLike(value: unknown): boolean {
  return Array.isArray(value) || (ArrayBuffer.isView(value) && !(value instanceof DataView));
}

function checked(
  value: number | undefined,
  limit: number,
  sequence: number,
  at: number,
  what: string,
): number {
  if (value !== undefined && Number.isInteger(value) && value >= 0 && value < limit) return value;
  throw invalid(
    `sequence ${sequence}: ${what} ${value} at index ${at} is outside 0..${limit - 1}` +
      (what === 'position' ? '; shorten the sequence or raise max_position_embeddings' : ''),
  );
}
