/**
 * Checkpoints that keep the experts of a layer in two tensors, as transformers 5 computes with them: `gate_up_proj` [E, 2·inner, in]
 * and `down_proj` [E, out, inner]. They are read as weights of each expert's own modules, which transformers 5 writes.
 */
import { bytesPerElement } from './dtype.js';
import { show, WeightsError } from './error.js';
import type { ExpertPlace, WeightSpec } from './modules.js';
import type { CheckpointReader } from './reader.js';
import type { TensorEntry } from './weights-file.js';

/** A weight that is a run of rows of its expert in a tensor of all. */
interface FusedWeight extends Pick<WeightSpec, 'shape'> {
  readonly expert: ExpertPlace & { readonly stored: NonNullable<ExpertPlace['stored']> };
}

const isFused = (spec: Pick<WeightSpec, 'shape' | 'expert'>): spec is FusedWeight =>
  spec.expert?.stored !== undefined;

const valuesOf = (shape: readonly number[]) => shape.reduce((product, extent) => product * extent, 1);

/** The shape of the tensor that holds the weight. */
function storedShape({ shape, expert }: FusedWeight): readonly number[] {
  const [rows = 0, ...columns] = shape;
  return [expert.count, expert.stored.parts * rows, ...columns];
}

/** The place of the weight in its tensor, in weights of its size. */
const placeOf = ({ expert: { index, stored } }: FusedWeight) => index * stored.parts + stored.part;

/**
 * The reader with the weights of each expert in place of the tensors that hold those of all.
 *
 * @throws WeightsError for such a tensor of another shape
 */
export function withFusedExperts(reader: CheckpointReader, specs: readonly WeightSpec[]): CheckpointReader {
  const own = new Map<string, FusedWeight>();
  const tensors = new Map(reader.tensors);
  for (const spec of specs) {
    const entry = isFused(spec) ? reader.tensors.get(spec.expert.stored.name) : undefined;
    if (!isFused(spec) || !entry) continue;
    const { name } = spec.expert.stored;
    const shape = storedShape(spec);
    if (entry.shape.join() !== shape.join())
      throw new WeightsError(
        `${reader.directory}: weight '${name}': expected shape ${show(shape)}, found ${show(entry.shape)}`,
      );
    tensors.delete(name);
    tensors.set(spec.name, {
      dtype: entry.dtype,
      shape: spec.shape,
      begin: 0,
      end: valuesOf(spec.shape) * bytesPerElement(entry.dtype),
    });
    own.set(spec.name, spec);
  }
  if (own.size === 0) return reader;
  const slice = (name: string, from: number, to: number): Uint8Array => {
    const weight = own.get(name);
    const stored = weight ? weight.expert.stored.name : name;
    const begin = weight ? placeOf(weight) * (tensors.get(name) as TensorEntry).end : 0;
    return (
      reader.part?.(stored, begin + from, begin + to) ??
      reader.read(stored).subarray(begin + from, begin + to)
    );
  };
  return {
    directory: reader.directory,
    tensors,
    // In an array of its own, which begins where every element type may.
    read: (name) =>
      own.has(name)
        ? Uint8Array.from(slice(name, 0, (tensors.get(name) as TensorEntry).end))
        : reader.read(name),
    part: slice,
    format: (name) => (own.has(name) ? undefined : reader.format?.(name)),
    quantized: (name) => (own.has(name) ? undefined : reader.quantized?.(name)),
    close: () => reader.close(),
  };
}
