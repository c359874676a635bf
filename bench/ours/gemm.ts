import { packWeight } from '#src/ops/gemm.js';
import type { Device } from '#src/runtime/device.js';
import type { Tensor } from '#src/runtime/tensor.js';
import type { GemmCase } from '../cases.js';
import { randomTensor } from './random.js';
import { copiesFor, stopwatch } from './stopwatch.js';

const SCALE = 2; // lora_alpha / r

/** Frozen weights are packed when a model is loaded, so packing is outside the time. */
export async function benchGemm(device: Device, item: GemmCase, seconds: number): Promise<number[]> {
  const { m, k, n, dtype, op, rank } = item;
  if (op === 'swiglu' || op === 'qkv') return benchFused(device, item, seconds);
  const sets = Array.from({ length: copiesFor(item.bytes) }, (_, seed) => ({
    x: randomTensor(device, [m, k], dtype, { seed: seed + 1 }),
    dy: op === 'linear' ? undefined : randomTensor(device, [m, n], dtype, { seed: seed + 51 }),
    w: device.scope(() => packWeight(randomTensor(device, [n, k], dtype, { seed: seed + 101 }), dtype)),
  }));
  const pair = rank > 0 ? pairOf(device, item) : undefined;
  const { ops } = device;
  const lora = pair && { lora_a: pair.a, lora_b: pair.b, scale: SCALE };
  const trains = pair !== undefined && op === 'both';
  const samples = await stopwatch(device, seconds, (run) => {
    const { x, dy, w } = sets[run % sets.length] as (typeof sets)[number];
    const forward = op === 'linear_dx' ? undefined : ops.linear({ x, w, ...lora, u: trains });
    const gradients = trains && { x, u: forward?.u, da: pair.da, db: pair.db };
    const backward = dy && ops.linear_dx({ dy, w, ...lora, ...gradients });
    for (const tensor of Object.values({ ...forward, ...backward })) tensor?.dispose();
  });
  for (const set of sets) for (const tensor of Object.values(set)) tensor?.dispose();
  for (const tensor of Object.values(pair ?? {})) tensor.dispose();
  return samples;
}

/** Several weights on one input, which one op reads. */
async function benchFused(device: Device, item: GemmCase, seconds: number): Promise<number[]> {
  const { m, k, n, kv, dtype, op } = item;
  const columns = op === 'swiglu' ? [n, n] : [n, kv, kv];
  const sets = Array.from({ length: copiesFor(item.bytes) }, (_, seed) => ({
    x: randomTensor(device, [m, k], dtype, { seed: seed + 1 }),
    weights: columns.map((size, i) =>
      device.scope(() =>
        packWeight(
          randomTensor(device, [size, k], dtype, { seed: 101 * (i + 1) + seed, bound: 0.035 }),
          dtype,
        ),
      ),
    ),
  }));
  const { ops } = device;
  const samples = await stopwatch(device, seconds, (run) => {
    const { x, weights } = sets[run % sets.length] as (typeof sets)[number];
    const [first, second, third] = weights as [Tensor, Tensor, Tensor];
    const made =
      op === 'swiglu'
        ? ops.linear_swiglu({ x, w_gate: first, w_up: second })
        : ops.linear_qkv({ x, w_q: first, w_k: second, w_v: third });
    for (const tensor of Object.values(made)) tensor?.dispose();
  });
  for (const { x, weights } of sets) for (const tensor of [x, ...weights]) tensor.dispose();
  return samples;
}

/** f32 as adapters are trained, with their gradients. */
function pairOf(device: Device, { k, n, rank }: GemmCase) {
  return {
    a: randomTensor(device, [rank, k], 'f32', { seed: 7 }),
    b: randomTensor(device, [n, rank], 'f32', { seed: 8 }),
    da: device.zeros([rank, k]),
    db: device.zeros([n, rank]),
  };
}
