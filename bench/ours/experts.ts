/**
 * The rows of experts in one op beside a loop of linears, of the shape of Qwen3-30B-A3B: 128 experts, 8 for a token, in bf16. The
 * loop knows how many rows each expert has and skips those without any.
 */
import { expertWeight, stackWeight } from '#src/ops/experts.js';
import { packWeight } from '#src/ops/gemm.js';
import type { Device } from '#src/runtime/device.js';
import type { Tensor } from '#src/runtime/tensor.js';
import { median } from '../statistics.js';
import { randomTensor } from './random.js';
import type { Metrics } from './runtime.js';

const [EXPERTS, CHOSEN, HIDDEN, INNER] = [128, 8, 2048, 768];
const TOKENS = [1, 4, 32, 512];
const ROUND_SECONDS = 0.05;

/** `count` rounds of both in turns, after one that is not counted. */
export async function expertsBesideLoop(device: Device, count: number): Promise<Metrics> {
  const metrics: Record<string, number> = {};
  const one = device.scope(() =>
    packWeight(randomTensor(device, [INNER, HIDDEN], 'bf16', { seed: 1 }), 'bf16'),
  );
  let w = stackWeight(one, 0, EXPERTS);
  for (let e = 1; e < EXPERTS; e++) w = stackWeight(one, e, EXPERTS, w);
  const each = Array.from({ length: EXPERTS }, (_, e) => expertWeight(w, e));
  for (const tokens of TOKENS) {
    const logits = randomTensor(device, [tokens, EXPERTS], 'f32', { seed: tokens });
    const { offsets } = device.ops.route({ logits, k: CHOSEN, P: EXPERTS });
    const at = (await offsets.read()) as Int32Array;
    const x = randomTensor(device, [tokens * CHOSEN, HIDDEN], 'bf16', { seed: 2 });
    const dy = randomTensor(device, [tokens * CHOSEN, INNER], 'bf16', { seed: 3 });
    const active = each.flatMap((w, e) => {
      const [first, last] = [at[e] as number, at[e + 1] as number];
      return first < last ? [{ w, x: x.slice(first, last), dy: dy.slice(first, last) }] : [];
    });
    const ways: Record<string, readonly [grouped: () => Tensor[], loop: () => Tensor[]]> = {
      forward: [
        () => [device.ops.linear_experts({ x, w, offsets }).y],
        () => active.map(({ x, w }) => device.ops.linear({ x, w }).y),
      ],
      'gradient of x': [
        () => [device.ops.linear_experts_dx({ dy, w, offsets }).dx],
        () => active.map(({ dy, w }) => device.ops.linear_dx({ dy, w }).dx),
      ],
    };
    for (const [name, [grouped, loop]] of Object.entries(ways)) {
      const times: [number[], number[]] = [[], []];
      for (let round = 0; round <= count; round++)
        for (const [i, way] of [grouped, loop].entries()) {
          const seconds = await timeOf(device, way);
          if (round > 0) times[i]?.push(seconds);
        }
      const ratios = times[1].map((seconds, round) => seconds / (times[0][round] as number));
      metrics[`ms, ${name}, ${tokens} tokens`] = 1000 * median(times[0]);
      metrics[`times a loop, ${name}, ${tokens} tokens`] = median(ratios);
    }
  }
  return metrics;
}

/** Seconds of one run, of as many as take ROUND_SECONDS. */
async function timeOf(device: Device, work: () => Tensor[]): Promise<number> {
  const began = performance.now();
  let runs = 0;
  let spent = 0;
  for (; spent < ROUND_SECONDS; runs++) {
    for (const tensor of work()) tensor.dispose();
    await device.synchronize();
    spent = (performance.now() - began) / 1000;
  }
  return spent / runs;
}
