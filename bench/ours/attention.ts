import type { Device } from '#src/runtime/device.js';
import type { Tensor } from '#src/runtime/tensor.js';
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
  const scalars = [1, 0, headDim ** -0.5];
  const forward = () =>
    device.enqueue(device.signature('attention'), [q, k, v, cuSeqlens, undefined], scalars) as [
      Tensor,
      Tensor,
    ];
  const saved = forward();
  const backward = () =>
    device.enqueue(
      device.signature('attention_backward'),
      [dy, q, k, v, ...saved, cuSeqlens, undefined],
      scalars,
    );
  const samples = await stopwatch(device, seconds, () => {
    for (const tensor of direction === 'forward' ? forward() : backward()) tensor?.dispose();
  });
  for (const tensor of [q, k, v, dy, cuSeqlens, ...saved]) tensor.dispose();
  return samples;
}
