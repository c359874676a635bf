/**
 * Adapters that PEFT wrote on experts since transformers 5 keeps those of a layer in two parameters: `gate_up_proj` [E, 2·inner, in] and
 * `down_proj` [E, out, inner], whose pairs hold those of all experts. Read as pairs of each expert's own modules, as PEFT wrote before.
 */
import { bytesPerElement } from './dtype.js';
import { WeightsError } from './error.js';
import type { TensorEntry, WeightsFile } from './weights-file.js';

/** Modules of an expert by the parameter that holds them. */
const PARAMETERS: Readonly<Record<string, readonly string[]>> = {
  gate_up_proj: ['gate_proj', 'up_proj'],
  down_proj: ['down_proj'],
};

/** The rank of each expert's pair, of parameters that have pairs. */
export interface JointRanks {
  readonly gate_up_proj?: number | undefined;
  readonly down_proj?: number | undefined;
}

/** The parameter among `PARAMETERS` that an entry of `target_parameters` names, `gate` for a router, or undefined. */
export function jointParameter(entry: string): keyof JointRanks | 'gate' | undefined {
  if (/(^|\.)gate\.weight$/.test(entry)) return 'gate';
  const [, found] = /^(?:.*\.)?(gate_up_proj|down_proj)$/.exec(entry) ?? [];
  return found as keyof JointRanks | undefined;
}

/** Names of modules for the names of `target_parameters`. */
export const jointModules = (parameter: keyof JointRanks | 'gate'): readonly string[] =>
  PARAMETERS[parameter] ?? [parameter];

interface Slice {
  readonly source: string;
  readonly side: 'A' | 'B';
  readonly expert: number;
  readonly experts: number;
  /** Of B: the first row. */
  readonly first: number;
  readonly shape: readonly [number, number];
}

const JOINT = /^(.+\.experts)(\.base_layer)?\.lora_([AB])\.weight$/;

/** The file with the tensors of each expert in place of the joint ones. */
export function withExpertNames(file: WeightsFile, ranks: JointRanks): WeightsFile {
  const slices = new Map<string, Slice>();
  const tensors = new Map<string, TensorEntry>();
  for (const [name, entry] of file.tensors) {
    const [, experts, inner, side] = JOINT.exec(name) ?? [];
    if (experts === undefined) {
      tensors.set(name, entry);
      continue;
    }
    // The first of two parameters of a module lies inside of the second.
    const parameter = inner || ranks.down_proj === undefined ? 'gate_up_proj' : 'down_proj';
    const rank = ranks[parameter];
    const [rows = 0, columns = 0] = entry.shape;
    const count = (side === 'A' ? rows : columns) / (rank ?? 1);
    if (rank === undefined || entry.shape.length !== 2 || !Number.isInteger(count))
      throw new WeightsError(
        `${file.path}: tensor '${name}': expected a matrix of ${rank ?? 'no'} ranks for each expert, found [${entry.shape.join(', ')}]`,
      );
    const modules = jointModules(parameter);
    const shape = side === 'A' ? ([rank, columns] as const) : ([rows / modules.length, rank] as const);
    const bytes = shape[0] * shape[1] * bytesPerElement(entry.dtype);
    for (let expert = 0; expert < count; expert++)
      for (const [i, module] of modules.entries()) {
        const own = `${experts}.${expert}.${module}.lora_${side}.weight`;
        slices.set(own, {
          source: name,
          side: side as 'A' | 'B',
          expert,
          experts: count,
          first: i * shape[0],
          shape,
        });
        tensors.set(own, { dtype: entry.dtype, shape, begin: 0, end: bytes });
      }
  }
  if (slices.size === 0) return file;
  let held: { readonly name: string; readonly bytes: Uint8Array<ArrayBuffer> } | undefined;
  const whole = (name: string) => {
    if (held?.name !== name) held = { name, bytes: file.read(name) };
    return held.bytes;
  };
  return {
    path: file.path,
    tensors,
    read(name) {
      const slice = slices.get(name);
      if (!slice) return file.read(name);
      const size = bytesPerElement((tensors.get(name) as TensorEntry).dtype);
      return slice.side === 'A'
        ? partOfA(whole(slice.source), slice, size)
        : partOfB(whole(slice.source), slice, size);
    },
    close: () => file.close(),
  };
}

/** A is [E·r, in], of each expert in turn. */
function partOfA(bytes: Uint8Array<ArrayBuffer>, { expert, shape }: Slice, size: number) {
  const own = shape[0] * shape[1] * size;
  return bytes.slice(expert * own, (expert + 1) * own);
}

/** B is [out, r·E], of each rank in turn. */
function partOfB(bytes: Uint8Array<ArrayBuffer>, { expert, experts, first, shape }: Slice, size: number) {
  const [rows, rank] = shape;
  const out = new Uint8Array(rows * rank * size);
  for (let row = 0; row < rows; row++)
    for (let r = 0; r < rank; r++) {
      const from = (((first + row) * rank + r) * experts + expert) * size;
      out.set(bytes.subarray(from, from + size), (row * rank + r) * size);
    }
  return out;
}
