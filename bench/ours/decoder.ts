/** Decoders and adapters of random weights. */
import { modelWeights, parseModelConfig } from '#src/architectures/table.js';
import type { Parameter, ParameterSpec } from '#src/autograd/parameters.js';
import { type Adapter, createAdapter } from '#src/models/adapter.js';
import { Decoder } from '#src/models/decoder.js';
import { packQuantized, packWeight, quantizeWeight } from '#src/ops/gemm.js';
import { cast } from '#src/ops/memory.js';
import type { Device } from '#src/runtime/device.js';
import type { Tensor } from '#src/runtime/tensor.js';
import { parseAdapterConfig } from '#src/weights/adapter-config.js';
import type { JsonObject } from '#src/weights/json.js';
import { quantizedBytes } from '#src/weights/quantized/format.js';
import type { FloatType } from '../cases.js';
import { randomTensor } from './random.js';
import { inTurn } from './stopwatch.js';

/** Formats of linear weights; of embedding and head, which stay as they are without one, q8_0 beside q4_1 is as llama.cpp makes them. */
const FORMATS: Readonly<Record<Format, { readonly linear: Stored; readonly head?: Stored }>> = {
  nf4: { linear: 'nf4_double' },
  int8: { linear: 'int8' },
  q4_1: { linear: 'q4_1', head: 'q8_0' },
  nf4_head: { linear: 'nf4_double', head: 'int8' },
  int8_head: { linear: 'int8', head: 'int8' },
};
type Stored = 'nf4_double' | 'int8' | 'q4_1' | 'q8_0';

/** As `model.quantize`, and a file of llama.cpp. */
export type Format = 'nf4' | 'int8' | 'q4_1' | 'nf4_head' | 'int8_head';

/**
 * Built without files; frozen weights in the layouts that loading from a directory gives.
 *
 * @param format absent: all are in `dtype`
 */
export async function randomDecoder(
  device: Device,
  json: Readonly<Record<string, unknown>>,
  dtype: FloatType,
  format?: Format,
): Promise<Decoder> {
  const config = parseModelConfig(json as never, 'bench');
  const weights = new Map<string, Parameter>();
  /** By shape: layers have memory of their own, and the same values, which come to the device once. */
  const drawn = new Map<string, Tensor>();
  await inTurn(async () => {
    for (const { name, shape, kind } of modelWeights(config)) {
      const key = shape.join();
      if (kind !== 'norm' && !drawn.has(key))
        drawn.set(key, randomTensor(device, shape, 'bf16', { bound: 0.035, seed: weights.size + 1 }));
      const value = device.scope(() => {
        if (kind === 'norm') return device.tensor(new Float32Array(shape[0] as number).fill(1));
        const values = drawn.get(key) as Tensor;
        if (shape.length === 1 || kind === 'convolution') return cast(values, 'f32');
        const own = format && FORMATS[format][kind === 'linear' ? 'linear' : 'head'];
        return own ? quantized(values, own) : packWeight(values, dtype);
      });
      await device.synchronize();
      weights.set(name, { name, value });
      // The largest, embedding and head, would only stand in the way.
      if (!name.includes('layers.')) {
        drawn.get(key)?.dispose();
        drawn.delete(key);
      }
    }
    for (const tensor of drawn.values()) tensor.dispose();
  });
  return new Decoder(device, config, weights, { dtype });
}

function quantized(values: Tensor, format: Stored): Tensor {
  const shape = values.shape as [number, number];
  const size = quantizedBytes(format, shape);
  const { device } = values;
  const bytes =
    format === 'q4_1' || format === 'q8_0'
      ? device.tensor(blocks(size, format))
      : quantizeWeight(values, format, size);
  return packQuantized(bytes, format, shape);
}

/** q4_1, of 20 bytes: halves of about 2^-8 as scale and -2^-5 as least value, and codes; q8_0, of 34: about 2^-12, and codes. */
function blocks(size: number, format: 'q4_1' | 'q8_0'): Uint8Array {
  const bytes = Uint8Array.from({ length: size }, (_, i) => (Math.imul(i + 1, 0x9e3779b1) >>> 16) & 255);
  if (format === 'q8_0') for (let at = 1; at < size; at += 34) bytes[at] = 0x0c;
  else for (let at = 1; at < size; at += 20) [bytes[at], bytes[at + 2]] = [0x1c, 0xa8];
  return bytes;
}

/** On all projections of the layers unless `more` says otherwise, with the values that training starts from. */
export function newAdapter(
  { device, config }: Decoder,
  rank: number,
  more: JsonObject = {},
  heads: readonly ParameterSpec[] = [],
): Adapter {
  const targets = { target_modules: 'all-linear', ...more };
  const settings = { peft_type: 'LORA', r: rank, lora_alpha: 2 * rank, ...targets };
  return createAdapter(device, config, parseAdapterConfig(settings, 'bench'), { seed: 1, heads });
}
