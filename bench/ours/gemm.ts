import { packWeight } from '#src/ops/gemm.js';
import type { Device } from '#src/runtime/device.js';
import type { GemmCase } from '../cases.js';
import { randomTensor } from './random.js';
import { copiesFor, stopwatch } from './stopwatch.js';

/** Frozen weights are packed when a model is loaded, so packing is outside the time. */
export async function benchGemm(device: Device, item: GemmCase, seconds: number): Promise<number[]> {
  const { m, k, n, dtype, op } = item;
  const bytes = (m * k + n * k + m * n) * (dtype === 'f32' ? 4 : 2);
  const sets = Array.from({ length: copiesFor(bytes) }, (_, seed) => ({
    x: randomTensor(device, [m, op === 'linear' ? k : n], dtype, { seed: seed + 1 }),
    w: device.scope(() => packWeight(randomTensor(device, [n, k], dtype, { seed: seed + 101 }), dtype)),
  }));
  const signature = device.signature(op);
  const samples = await stopwatch(device, seconds, (run) => {
    const { x, w } = sets[run % sets.length] as (typeof sets)[number];
    device.enqueue(signature, [x, w])[0]?.dispose();
  });
  for (const { x, w } of sets) {
    x.dispose();
    w.dispose();
  }
  return samples;
}
