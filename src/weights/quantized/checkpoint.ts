/** Checkpoints with quantised weights, each joined with its scales: values in f32, and codes as stored. */
import { fromF32 } from '../convert.js';
import type { CheckpointReader } from '../reader.js';
import type { TensorEntry } from '../weights-file.js';
import { bitsandbytesWeights } from './bitsandbytes.js';
import { dequantizedValues } from './format.js';
import { scaledWeights } from './scaled.js';

/**
 * The reader with each weight of bitsandbytes (NF4), compressed-tensors or fbgemm (fp8, int8) as one tensor in f32.
 *
 * @throws WeightsError for a weight whose tensors do not fit together, or are of a kind that is not read
 */
export function withQuantizedWeights(reader: CheckpointReader): CheckpointReader {
  const blocks = bitsandbytesWeights(reader);
  // Codes of bitsandbytes may be stored as any type, also as those of scaled weights.
  const weights = new Map([...blocks, ...scaledWeights(reader, (name) => !blocks.has(name))]);
  if (weights.size === 0) return reader;
  const parts = new Set([...weights.values()].flatMap((weight) => weight.parts));
  const tensors = new Map<string, TensorEntry>([...reader.tensors].filter(([name]) => !parts.has(name)));
  for (const [name, { shape }] of weights)
    tensors.set(name, { dtype: 'F32', shape, begin: 0, end: 4 * shape[0] * shape[1] });
  return {
    directory: reader.directory,
    tensors,
    read(name) {
      const weight = weights.get(name);
      return weight ? fromF32(dequantizedValues(weight.read(), weight.shape), 'F32') : reader.read(name);
    },
    format: (name) => weights.get(name)?.format,
    quantized: (name) => weights.get(name)?.read(),
    close: () => reader.close(),
  };
}
