import type { Device } from '#src/runtime/device.js';
import type { AttentionCase } from '../cases.js';
import { randomTensor } from './random.js';
import { stopwatch } from './stopwatch.js';

export async function benchAttention(
  device: Device,
  item: AttentionCase,
  seconds: number,
): Promise<number[]> {
  const { lengths, heads, kvHeads, headDim, dtype, direction } = item;
  const ends = [0];
  for (const length of lengths) ends.push((ends.at(-1) as number) + length);
  const tokens = ends.at(-1) as number;
  const random = (count: number, seed: number) =>
    randomTensor(device, [tokens, count, headDim], dtype, { seed });
  const [q, k, v, dy] = [random(heads, 1), random(kvHeads, 2), random(kvHeads, 3), random(heads, 4)];
  const cuSeqlens = device.tensor(Int32Array.from(ends));
  const given = { q, k, v, cu_seqlens: cuSeqlens, scale: headDim ** -0.5 };
  const forward = () => device.ops.attention(given);
  const saved = forward();
  const backward = () => device.ops.attention_backward({ ...given, ...saved, do: dy });
  const samples = await stopwatch(device, seconds, () => {
    for (const tensor of Object.values(direction === 'forward' ? forward() : backward())) tensor.dispose();
  });
  for (const tensor of [q, k, v, dy, cuSeqlens, ...Object.values(saved)]) tensor.dispose();
  return samples;
}
