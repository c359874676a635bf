/**
 * Adapters on experts in the form of PEFT for transformers 5, which keeps the experts of a layer in two parameters:
 * `gate_up_proj` [E, 2·inner, in] and `down_proj` [E, out, inner], whose pairs hold those of all experts. They are read
 * as pairs of each expert's own modules, PEFT's earlier form.
 */
import { bytesPerElement } from './dtype.js';
import { WeightsError } from './error.js';
import { MAX_EXPERTS, type ModuleSpec } from './modules.js';
import type { TensorEntry, WeightsFile } from './weights-file.js';

/** Modules of an expert by the parameter that holds them. */
export const PARAMETERS = {
  gate_up_proj: ['gate_proj', 'up_proj'],
  down_proj: ['down_proj'],
} as const;
export type JointParameter = keyof typeof PARAMETERS;

/** The prefix that PEFT's files have before a module's name. */
export const PREFIX = 'base_model.model.';

/** The parameter that an entry of `target_parameters` may name for a module: one of all experts, or the module's own weight. */
export function parameterOf({ name, expert }: Pick<ModuleSpec, 'name' | 'expert'>): string {
  if (!expert) return `${name}.weight`;
  const [, experts, module] = /^(.+)\.(\w+)$/.exec(expert.of) as unknown as [string, string, string];
  return `${experts}.${module === 'down_proj' ? 'down_proj' : 'gate_up_proj'}`;
}

/** The part of a joint pair that is one expert's. */
interface Slice {
  readonly source: string;
  readonly side: 'A' | 'B';
  readonly expert: number;
  readonly experts: number;
  /** First row in B. */
  readonly first: number;
  readonly shape: readonly [number, number];
}

const JOINT = /^base_model\.model\.(.+\.experts)(\.base_layer)?\.lora_([AB])\.weight$/;

/** A tensor without values may claim any number. */
const isNumberOfExperts = (count: number, values: number) =>
  Number.isInteger(count) && count <= MAX_EXPERTS && values > 0;

/**
 * The file with the tensors of each expert in place of the joint ones.
 *
 * @param rankOf the rank of a parameter such as `model.layers.3.mlp.experts.down_proj`; undefined: it has no pair
 */
export function withExpertNames(
  file: WeightsFile,
  rankOf: (parameter: string) => number | undefined,
): WeightsFile {
  const slices = new Map<string, Slice>();
  const tensors = new Map<string, TensorEntry>();
  for (const [name, entry] of file.tensors) {
    const [, experts, inner, side] = JOINT.exec(name) ?? [];
    if (experts === undefined) {
      tensors.set(name, entry);
      continue;
    }
    // The first of two parameters of a module lies inside of the second.
    const outer = rankOf(`${experts}.down_proj`) === undefined ? 'gate_up_proj' : 'down_proj';
    const parameter: JointParameter = inner ? 'gate_up_proj' : outer;
    const joint = rankOf(`${experts}.${parameter}`);
    const [rows = 0, columns = 0] = entry.shape;
    const count = (side === 'A' ? rows : columns) / (joint ?? 1);
    if (joint === undefined || entry.shape.length !== 2 || !isNumberOfExperts(count, rows * columns))
      throw new WeightsError(
        `${file.path}: tensor '${name}': expected a matrix of ${joint ?? 'no'} ranks for each of at most ${MAX_EXPERTS} experts, found [${entry.shape.join(', ')}]`,
      );
    const modules = PARAMETERS[parameter];
    for (const [i, module] of modules.entries()) {
      const shape = side === 'A' ? ([joint, columns] as const) : ([rows / modules.length, joint] as const);
      const end = shape[0] * shape[1] * bytesPerElement(entry.dtype);
      const slice = { source: name, side: side as 'A' | 'B', experts: count, first: i * shape[0], shape };
      for (let expert = 0; expert < count; expert++) {
        const own = `${PREFIX}${experts}.${expert}.${module}.lora_${side}.weight`;
        slices.set(own, { ...slice, expert });
        tensors.set(own, { dtype: entry.dtype, shape, begin: 0, end });
      }
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

/** Reads a part of A, [E·r, in], with one expert after another. */
function partOfA(bytes: Uint8Array<ArrayBuffer>, { expert, shape }: Slice, size: number) {
  const length = shape[0] * shape[1] * size;
  return bytes.slice(expert * length, (expert + 1) * length);
}

/** Reads a part of B, [out, r·E], with one rank after another. */
function partOfB(bytes: Uint8Array<ArrayBuffer>, { expert, experts, first, shape }: Slice, size: number) {
  const [rows, rank] = shape;
  const out = new Uint8Array(rows * rank * size);
  for (let row = 0; row < rows; row++)
    for (let r = 0; r < rank; r++) {
      const at = (((first + row) * rank + r) * experts + expert) * size;
      out.set(bytes.subarray(at, at + size), (row * rank + r) * size);
    }
  return out;
}
