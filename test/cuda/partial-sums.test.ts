// Sums over many blocks beside the CPU's.
import { afterAll, describe, expect, it } from 'vitest';
import { type Device, openDevice } from '../../src/runtime/device.js';
import { maxDifference, random } from '../ops/numbers.js';
import { gpus, skipped } from './gpu.js';

describe.skipIf(gpus.length === 0)(`sums over many blocks on cuda:0${skipped}`, () => {
  const cpu = openDevice('cpu');
  const gpu = gpus.length > 0 ? openDevice('cuda:0') : cpu;
  afterAll(() => {
    for (const device of new Set([cpu, gpu])) device.dispose();
  });

  async function whiten(device: Device, x: Float32Array, mask?: Float32Array, shift_mean = true) {
    const given = { x: device.tensor(x, [x.length]), mask: mask && device.tensor(mask, [mask.length]) };
    await device.synchronize();
    const before = device.stats().launches;
    const { y } = device.ops.whiten({ ...given, shift_mean });
    return { y: await y.readFloats(), launches: device.stats().launches - before };
  }

  /** Around what one block takes, and more than the most blocks take without longer parts. */
  it.each([24_576, 24_577, 26_625, 600_001])('whiten %d elements as the CPU does', async (n) => {
    const x = random(n, 1).map((v) => 3 * v + 5);
    const mask = Float32Array.from(random(n, 2), (v) => (v > 0 ? 1 : 0));
    const masks = [mask, undefined, new Float32Array(n), new Float32Array(n).fill(1, n - 1)];
    for (const given of n < 30_000 ? masks : [mask])
      for (const shift of n < 30_000 ? [true, false] : [true]) {
        const [got, want] = [await whiten(gpu, x, given, shift), await whiten(cpu, x, given, shift)];
        expect(got.launches).toBe(n > 24_576 ? 3 : 1);
        expect(maxDifference(got.y, want.y)).toBeLessThan(2e-6);
        expect(await whiten(gpu, x, given, shift)).toEqual(got);
      }
  });

  it('whiten equal elements to 0', async () => {
    const { y } = await whiten(gpu, new Float32Array(25_000).fill(0.5));
    expect(y.every((v) => v === 0)).toBe(true);
  });

  async function verdicts(device: Device, rows: number) {
    const vector = (seed: number) =>
      device.tensor(
        random(rows, seed).map((v) => v - 1.5),
        [rows],
      );
    const labels = device.tensor(Int32Array.from(random(rows, 3), (v) => (v > 0.3 ? 1 : 0)));
    const out = device.ops.verdict_constraint({ positive: vector(1), negative: vector(2), labels });
    return {
      loss: (await out.loss.readFloats())[0] as number,
      stats: await out.stats.readFloats(),
      gradients: [await out.dpositive.readFloats(), await out.dnegative.readFloats()],
    };
  }

  /** From 32,769 rows on one launch counts labels and another joins sums, a thread several from 262,145 on. */
  it.each([8193, 32_768, 32_769, 270_001])('weigh %d verdicts by class as the CPU does', async (rows) => {
    const [got, reference] = [await verdicts(gpu, rows), await verdicts(cpu, rows)];
    for (const [i, gradient] of got.gradients.entries())
      expect(maxDifference(gradient, reference.gradients[i]!)).toBeLessThan(1e-9);
    expect(Math.abs(got.loss - reference.loss)).toBeLessThan(1e-6);
    expect(maxDifference(got.stats, reference.stats)).toBeLessThan(1e-5);
    expect(got.stats.slice(4, 6)).toEqual(reference.stats.slice(4, 6));
  });

  async function scattered(device: Device, ids: Int32Array, words: number) {
    const width = 16;
    const dweight = device.zeros([words, width]);
    const dy = device.tensor(random(ids.length * width, 4), [ids.length, width]);
    device.ops.embedding_backward({ dy, ids: device.tensor(ids), dweight });
    return await dweight.readFloats();
  }

  it.each([1, 63, 65, 1024, 1025, 2500])('add the rows of %d tokens in order', async (n) => {
    for (const words of [7, 500]) {
      const ids = Int32Array.from(random(n, 5), (v) => Math.floor(((v + 1) / 2) * words) % words);
      expect(await scattered(gpu, ids, words)).toEqual(await scattered(cpu, ids, words));
    }
  });

  it('refuse a word out of range', async () => {
    const device = gpus.length > 0 ? openDevice('cuda:0') : cpu;
    scattered(device, Int32Array.of(0, 7, 2), 7).catch(() => {});
    await expect(device.synchronize()).rejects.toThrow('embedding_backward: ids[1] is 7, outside 0..6');
    device.dispose();
  });
});
