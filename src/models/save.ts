/** From a decoder back to a Hugging Face directory. */
import { unpackWeight } from '../ops/gemm.js';
import type { Tensor } from '../runtime/tensor.js';
import { writeCheckpoint } from '../weights/checkpoint-writer.js';
import { fromF32 } from '../weights/convert.js';
import { decoderWeights } from '../weights/decoder-modules.js';
import type { FloatDtype } from '../weights/dtype.js';
import { modelConfigJson } from './config.js';
import type { Decoder } from './decoder.js';

/** Writes weights and config.json; transformers loads the result. One weight at a time is in host memory. */
export async function saveDecoder(
  decoder: Decoder,
  directory: string,
  dtype: FloatDtype = 'F32',
): Promise<void> {
  const weights = decoderWeights(decoder.config).map(({ name, shape }) => ({
    name,
    shape,
    dtype,
    data: async () => fromF32(await readWeight(decoder, name), dtype),
  }));
  await writeCheckpoint(directory, weights, { config: modelConfigJson(decoder.config) });
}

/** A weight of the decoder as f32, row-major. */
export async function readWeight(decoder: Decoder, name: string): Promise<Float32Array<ArrayBuffer>> {
  const { value } = decoder.weight(name);
  // Packed weights have a layout of the device's own; of the others a cast is a copy at worst.
  const plain: Tensor = value.shape.length === 2 ? unpackWeight(value, 'f32') : value.alias();
  try {
    return (await plain.readFloats()) as Float32Array<ArrayBuffer>;
  } finally {
    plain.dispose();
  }
}
