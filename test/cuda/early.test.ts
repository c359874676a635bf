// Kernels that start before the one in front has ended (Stream::launch_early). The emulator, from sm_90 on, runs a block of them up
// to its wait first, and ends the process where a thread does not wait.
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { rmsNorm } from '../../src/ops/norm.js';
import { type Device, openDevice } from '../../src/runtime/device.js';
import { maxDifference, random } from '../ops/numbers.js';
import { stored } from '../ops/precision.js';
import { EMULATED, gpus, skipped } from './gpu.js';

const [K, N] = [64, 48];

type Written = 'no' | 'just before' | 'before an op that launches nothing';

describe.skipIf(gpus.length === 0).each([5, 40])(
  `kernels that start early on cuda:0, %d rows${skipped}`,
  (T) => {
    let gpu: Device;
    let cpu: Device;
    const folder = mkdtempSync(join(tmpdir(), 'steptrain-early-'));
    const log = join(folder, 'early');
    beforeAll(() => {
      process.env.STEPTRAIN_EMULATED_EARLY = log;
      gpu = openDevice('cuda:0');
      cpu = openDevice('cpu');
    });
    beforeEach(() => writeFileSync(log, ''));
    afterAll(() => {
      delete process.env.STEPTRAIN_EMULATED_EARLY;
      gpu.dispose();
      cpu.dispose();
      rmSync(folder, { recursive: true });
    });
    const of = (device: Device, shape: readonly [number, number], seed: number) =>
      device.tensor(stored(random(shape[0] * shape[1], seed), 'bf16'), shape, 'bf16');

    /** x normed twice and multiplied by W, of which a part may be written by an op in front. */
    async function product(device: Device, written: Written): Promise<Float32Array> {
      const [x, weight, other] = [of(device, [T, K], 1), of(device, [N, K], 2), of(device, [16, K], 3)];
      const norm = { value: device.tensor(random(K, 4), [K]) } as Parameters<typeof rmsNorm>[1];
      const last = device.keep(weight.view((N - 16) * K, [16, K]));
      await device.synchronize();
      const normed = rmsNorm(rmsNorm(x, norm, 1e-6), norm, 1e-6);
      if (written !== 'no') device.ops.add({ x: other, y: other, z: last });
      const none = device.empty([0]);
      if (written === 'before an op that launches nothing') device.ops.add({ x: none, y: none });
      return await device.ops.linear({ x: normed, w: weight }).y.readFloats();
    }

    const ways: readonly Written[] = ['no', 'just before', 'before an op that launches nothing'];
    it.each(ways)('read a weight that an op in front wrote (%s) after their wait', async (written) => {
      const [got, want] = [await product(gpu, written), await product(cpu, written)];
      // Two norms and a product round their results to bf16.
      expect(maxDifference(got, want)).toBeLessThan(Math.max(...want.map(Math.abs)) * 3 * 2 ** -8);
      if (gpus[0] !== EMULATED) return;
      const started = readFileSync(log, 'utf8').split('\n').length - 1;
      // The second norm; the product, unless it reads its weight before its wait and that is what the op in front writes.
      const { isa } = gpu.info();
      const waits = Number(isa.slice('sm_'.length)) >= 90;
      const readsBefore = T <= 16 || isa === 'sm_90';
      expect(started).toBe(!waits ? 0 : written === 'no' || !readsBefore ? 2 : 1);
    });

    it('start in their turn with STEPTRAIN_EARLY_START=0, with the same bits', async () => {
      const early = await product(gpu, 'no');
      writeFileSync(log, '');
      process.env.STEPTRAIN_EARLY_START = '0';
      const other = openDevice('cuda:0');
      delete process.env.STEPTRAIN_EARLY_START;
      expect(await product(other, 'no')).toEqual(early);
      expect(readFileSync(log, 'utf8')).toBe('');
      other.dispose();
    });
  },
);
