import type { Device } from '#src/runtime/device.js';
import type { LinearAttentionCase } from '../cases.js';
import { randomTensor } from './random.js';
import { stopwatch } from './stopwatch.js';

export async function benchLinearAttention(
  device: Device,
  item: LinearAttentionCase,
  seconds: number,
): Promise<number[]> {
  const { lengths, heads, headDim, dtype, direction } = item;
  const ends = [0];
  for (const length of lengths) ends.push((ends.at(-1) as number) + length);
  const tokens = ends.at(-1) as number;
  const random = (shape: readonly number[], seed: number) => randomTensor(device, shape, dtype, { seed });
  const given = {
    qkv: random([tokens, 3 * heads * headDim], 1),
    a: random([tokens, heads], 2),
    b: random([tokens, heads], 3),
    a_log: randomTensor(device, [heads], 'f32', { seed: 4 }),
    dt_bias: randomTensor(device, [heads], 'f32', { seed: 5 }),
    cu_seqlens: device.tensor(Int32Array.from(ends)),
    G: heads,
    K: headDim,
  };
  const dy = random([tokens, heads, headDim], 6);
  const forward = () => device.ops.gated_delta_rule({ ...given, V: headDim });
  const backward = () => device.ops.gated_delta_rule_backward({ ...given, do: dy });
  const samples = await stopwatch(device, seconds, () => {
    for (const tensor of Object.values(direction === 'forward' ? forward() : backward())) tensor.dispose();
  });
  const { G: _, K: _size, ...tensors } = given;
  for (const tensor of [...Object.values(tensors), dy]) tensor.dispose();
  return samples;
}
