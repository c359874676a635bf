/** Writes a decoder to a Hugging Face directory. */
import type { ModelConfig } from '../architectures/config.js';
import { modelConfigJson, modelWeights } from '../architectures/table.js';
import { unpackWeight } from '../ops/gemm.js';
import type { Tensor } from '../runtime/tensor.js';
import { writeCheckpoint } from '../weights/checkpoint-writer.js';
import { countInexact, fromF32 } from '../weights/convert.js';
import { type FloatName, floatDtype } from '../weights/dtype.js';
import type { Decoder, Role, Rounding } from './decoder.js';

/** The role of the decoder that is written. */
export interface SavedRole {
  /** Weights that the role keeps whole replace those of the base; LoRA pairs are not merged. */
  readonly role?: Role;
  /** The configuration under the role's own head. Default: that of the decoder. */
  readonly model?: ModelConfig;
}

export interface SaveOptions extends SavedRole {
  /** Dtype of the weights that are written. Default f32. */
  readonly dtype?: FloatName;
  /** Larger models are split into files of at most this many bytes. */
  readonly maxShardBytes?: number;
  /** Aborted: the files of this call are removed, and the promise rejects with the signal's reason. */
  readonly signal?: AbortSignal | undefined;
}

/**
 * Writes weights and config.json; transformers loads the result. One weight at a time is in host memory.
 *
 * @returns how many values the dtype could not hold
 * @throws StepTrainError for another dtype, before anything is written
 */
export async function saveDecoder(
  decoder: Decoder,
  directory: string,
  { dtype: name = 'f32', maxShardBytes, signal, role = {}, model = decoder.config }: SaveOptions = {},
): Promise<Rounding> {
  const dtype = floatDtype('saveDecoder', name);
  let inexact = 0;
  let count = 0;
  const weights = modelWeights(model).map(({ name, shape, offset = 0 }) => ({
    name,
    shape,
    dtype,
    data: async () => {
      signal?.throwIfAborted();
      const weight = await readWeight(decoder, name, role);
      const values = offset === 0 ? weight : weight.map((value) => value - offset);
      inexact += countInexact(values, dtype);
      count += values.length;
      return fromF32(values, dtype);
    },
  }));
  const shards = maxShardBytes === undefined ? {} : { maxShardBytes };
  await writeCheckpoint(directory, weights, { config: modelConfigJson(model), ...shards });
  return { inexact, values: count };
}

/** A weight of the decoder, or of a role on it, as f32, row-major. */
export async function readWeight(
  decoder: Decoder,
  name: string,
  role: Role = {},
): Promise<Float32Array<ArrayBuffer>> {
  const { value } = decoder.weight(name, role);
  // A packed weight has a layout of the device's own; unpacking any other matrix is at most a copy.
  using plain: Tensor = value.shape.length === 2 ? unpackWeight(value, 'f32') : value.alias();
  return (await plain.readFloats()) as Float32Array<ArrayBuffer>;
}
