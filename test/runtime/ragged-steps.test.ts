// Training on batches of changing shapes uses as much memory at the end as at the beginning. `npm run bench -- runtime`
// does ten thousand steps.
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { type Device, openDevice } from '../../src/runtime/device.js';
import { AdamW } from '../../src/train/adamw.js';
import { everyToken, type LoraDecoder, loraDecoder } from '../autograd/lora-decoder.js';
import { random } from '../ops/numbers.js';

const STEPS = 3000;
const MiB = 2 ** 20;

setFlagsFromString('--expose-gc');
const collect: () => void = runInNewContext('gc');

let device: Device;
let model: LoraDecoder;
beforeAll(async () => {
  device = openDevice('cpu', { threads: 1 });
  model = await loraDecoder(device);
});
afterAll(() => device.dispose());

test(`tensors, live, reserved, native and heap bytes are constant over ${STEPS} ragged steps`, async () => {
  const optimizer = new AdamW(model.parameters, {
    beta1: 0.9,
    beta2: 0.999,
    epsilon: 1e-8,
    weightDecay: 0,
    maxGradNorm: 1,
  });
  const draws = random(6 * STEPS, 3).map((value) => (value + 1) / 2);
  const draw = (step: number, i: number, below: number) => Math.floor(draws[6 * step + i]! * below);
  const halves = [0, 1].map(() => ({ reserved: 0, native: 0, heap: 0, shapes: new Set<string>() }));
  let live: { tensors: number; liveBytes: number } | undefined;
  for (let step = 0; step < STEPS; step++) {
    const lengths = Array.from({ length: 1 + draw(step, 0, 5) }, (_, i) => 2 + draw(step, 1 + i, 24));
    const items = lengths.map((length, row) =>
      everyToken(
        Array.from({ length }, (_, t) => (31 * t + step + row) % 320),
        row,
      ),
    );
    model.parameters.zeroGrads();
    model.backward(items, step).dispose();
    await optimizer.step(1e-4);

    const { tensors, liveBytes, reservedBytes } = device.stats();
    live ??= { tensors, liveBytes };
    expect({ tensors, liveBytes }).toEqual(live);
    const half = halves[step < STEPS / 2 ? 0 : 1]!;
    half.reserved = Math.max(half.reserved, reservedBytes);
    const { rss, heapTotal } = process.memoryUsage();
    half.native = Math.max(half.native, rss - heapTotal);
    half.shapes.add(lengths.join());
    if ((step + 1) % (STEPS / 2) === 0) {
      collect();
      half.heap = process.memoryUsage().heapUsed;
    }
  }
  optimizer.dispose();
  const [first, second] = halves as [(typeof halves)[number], (typeof halves)[number]];
  expect(second.shapes.size).toBeGreaterThan(STEPS / 3);
  expect(second.reserved).toBe(first.reserved);
  // A leak of one float per token would be more than this. V8 reserves for its heap what it thinks fit; what is
  // in use there is counted after a collection, at the end of each half.
  expect(second.native - first.native).toBeLessThan(16 * MiB);
  expect(second.heap - first.heap).toBeLessThan(2 * MiB);
});
