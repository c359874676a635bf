// Reads end on a thread of their own: what is queued after one is launched before the GPU has come to it.
import { spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it, vi } from 'vitest';
import { type Device, openDevice } from '../../src/runtime/device.js';
import { random } from '../ops/numbers.js';
import { EMULATED, gpus, skipped } from './gpu.js';

const MiB = 2 ** 20;

describe.skipIf(gpus.length === 0)(`reads on cuda:0${skipped}`, () => {
  let device: Device;
  let folder: string;
  /** While it exists, the emulated GPU is busy. */
  let busy: string;
  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'steptrain-reads-'));
    busy = join(folder, 'busy');
    vi.stubEnv('STEPTRAIN_EMULATED_BUSY', busy);
  });
  afterAll(async () => {
    vi.unstubAllEnvs();
    await rm(folder, { recursive: true, force: true });
  });
  beforeEach(() => {
    device = openDevice('cuda:0');
  });
  afterEach(async () => {
    await rm(busy, { force: true });
    device.dispose();
  });

  /** Adds 1 to x, `count` times. */
  const add = (x: ReturnType<Device['tensor']>, count: number) => {
    const one = device.tensor(new Float32Array(x.shape[0] as number).fill(1));
    for (let i = 0; i < count; i++) device.ops.axpy({ y: x, x: one, factor: 1 });
  };

  it.skipIf(gpus[0] !== EMULATED)('do not hold back the launches of what is queued after them', async () => {
    const x = device.tensor(random(1000, 1));
    await device.synchronize();
    const want = await x.read();
    const { launches } = device.stats();
    await writeFile(busy, '');
    const over: string[] = [];
    const reads = [x.read(), device.synchronize(), x.read()].map((wait, i) =>
      wait.then(() => over.push(`${i}`)),
    );
    const first = x.read();
    add(x, 50);
    const last = x.read();
    for (let ms = 0; ms < 5000 && device.stats().launches < launches + 50; ms += 5) await sleep(5);
    expect(device.stats().launches).toBe(launches + 50);
    expect(over).toEqual([]);
    await rm(busy);
    await Promise.all(reads);
    expect(over).toEqual(['0', '1', '2']);
    expect(await first).toEqual(want);
    expect(Array.from(await last)).toEqual(
      Array.from(want as Float32Array, (value) => {
        let sum = value;
        for (let i = 0; i < 50; i++) sum = Math.fround(sum + 1);
        return sum;
      }),
    );
  });

  it('are right where together they are longer than the pinned memory, in any sizes', async () => {
    const sizes = [0, 1, 3 * MiB, 5, MiB / 2 + 3, MiB, MiB / 2, 0, 700_001, 64, MiB / 4 + 1, 2 * MiB + 7];
    const wanted = sizes.map((size, i) =>
      Uint8Array.from({ length: size }, (_, at) => at * (i + 7) + (at >> 9)),
    );
    const tensors = wanted.map((values) => device.tensor(values));
    for (let turn = 0; turn < 2; turn++) {
      await device.synchronize();
      if (gpus[0] === EMULATED) await writeFile(busy, '');
      const reads = tensors.map((tensor) => tensor.read());
      await sleep(50);
      await rm(busy, { force: true });
      const found = await Promise.all(reads);
      for (const [i, values] of found.entries())
        expect(Buffer.compare(values as Uint8Array, wanted[i] as Uint8Array)).toBe(0);
    }
  });

  it('many small ones see the value of their place in the queue', async () => {
    const x = device.zeros([3]);
    const reads = Array.from({ length: 400 }, () => {
      add(x, 1);
      return x.read();
    });
    const found = await Promise.all(reads);
    expect(found.map((values) => Array.from(values))).toEqual(found.map((_, i) => Array(3).fill(i + 1)));
  });

  it('that were queued before an op with an invalid index resolve, those after it reject', async () => {
    const weight = device.zeros([100, 8]);
    await device.synchronize();
    const { launches } = device.stats();
    if (gpus[0] === EMULATED) await writeFile(busy, '');
    const before = [weight.read(), device.synchronize()];
    const ids = device.tensor(Int32Array.of(0, 70_000));
    device.ops.embedding({ ids, weight, dtype: 'f32' });
    const after = [weight.read(), device.synchronize()].map((wait) =>
      wait.then(
        () => 'resolved',
        (error: Error) => error.message,
      ),
    );
    device.ops.fill({ x: weight, value: 1 });
    // All of it is launched before the GPU comes to the first read.
    for (let ms = 0; ms < 5000 && device.stats().launches < launches + 2; ms += 5) await sleep(5);
    await rm(busy, { force: true });
    expect(Array.from((await before[0]) as Float32Array)).toEqual(Array(800).fill(0));
    await before[1];
    for (const message of await Promise.all(after))
      expect(message).toContain('embedding: ids[1] is 70000, outside 0..99');
    await expect(weight.read()).rejects.toThrow('embedding: ids[1] is 70000');
  });

  it('that are launched end when the device is disposed, with what they read', async () => {
    const x = device.tensor(random(1000, 2));
    const want = await x.read();
    const reads = Array.from({ length: 5 }, () => x.read());
    if (gpus[0] === EMULATED) {
      await writeFile(busy, '');
      spawn('sh', ['-c', `sleep 0.3; rm ${busy}`]);
    }
    await sleep(50);
    device.dispose();
    expect(existsSync(busy)).toBe(false);
    for (const read of reads) expect(await read).toEqual(want);
  });

  it('wait for a free buffer, not for ever, where nothing else does', async () => {
    const x = device.tensor(new Uint8Array(9 * MiB).fill(3));
    const reads = [x.read(), x.read()];
    device.ops.fill({ x: device.empty([4]), value: 2 });
    await device.synchronize();
    for (const read of reads) expect((await read).every((value) => value === 3)).toBe(true);
  });
});
