// Several devices in one process, and tensors used on the wrong device.
import { readdirSync, readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { DisposedError } from '../../src/native/errors.js';
import { openDevice } from '../../src/runtime/device.js';
import type { Tensor } from '../../src/runtime/tensor.js';
import { random } from '../ops/numbers.js';

test('two devices work at the same time with separate memory', async () => {
  const devices = [openDevice('cpu', { threads: 1 }), openDevice('cpu', { threads: 2 })];
  const values = random(4096);
  const inputs = devices.map((device) => device.tensor(values));
  const sums = devices.map((device, i) => {
    const x = inputs[i] as Tensor;
    return device.scope(() => {
      let sum = device.zeros([4096]);
      for (let i = 0; i < 50; i++) sum = device.ops.add({ x: sum, y: x }).z;
      return sum;
    });
  });
  const [first, second] = await Promise.all(sums.map((sum) => sum.readFloats()));
  expect(first).toEqual(second);
  expect(first?.[7]).toBeCloseTo(50 * (values[7] as number), 3);
  for (const device of devices) expect(device.stats().tensors).toBe(2);
  devices[0]?.dispose();
  expect(await sums[1]!.readFloats()).toEqual(first);
  devices[1]?.dispose();
  // Held until here: what nobody holds may be freed.
  expect(inputs).toHaveLength(2);
});

test('a tensor of another device is refused, even if this device has the same handle', async () => {
  const [a, b] = [openDevice('cpu', { threads: 1 }), openDevice('cpu', { threads: 1 })];
  const mine = a.tensor(new Float32Array([1, 2]));
  const foreign = b.tensor(new Float32Array([3, 4]));
  expect(() => a.ops.copy({ x: foreign })).toThrow(/another device/);
  expect(() => a.ops.add({ x: mine, y: foreign })).toThrow(/another device/);
  expect(() => b.ops.axpy({ y: foreign, x: mine, factor: 1 })).toThrow(/another device/);
  expect(Array.from(await mine.readFloats())).toEqual([1, 2]);
  expect(Array.from(await foreign.readFloats())).toEqual([3, 4]);
  a.dispose();
  b.dispose();
});

test('a tensor of a disposed device is refused', async () => {
  const device = openDevice('cpu', { threads: 1 });
  const x = device.tensor(new Float32Array([1]));
  device.dispose();
  device.dispose();
  await expect(x.read()).rejects.toThrow(DisposedError);
  expect(() => x.write(new Float32Array([2]))).toThrow(DisposedError);
  expect(() => x.slice(0, 1)).toThrow(DisposedError);
  expect(() => device.ops.copy({ x })).toThrow(DisposedError);
  x.dispose();
});

test('a stale handle is refused after its slot has a new tensor', () => {
  const device = openDevice('cpu', { threads: 1 });
  const old = device.empty([4]);
  const { handle } = old;
  old.dispose();
  const fresh = device.empty([4]);
  expect(fresh.handle).not.toBe(handle);
  const stale = device.adopt(handle, [4], 'f32', 'a test');
  expect(() => device.ops.copy({ x: stale })).toThrow(expect.objectContaining({ code: 'E_HANDLE' }));
  device.dispose();
});

/** The nice value of every thread of this process, by its id. */
function niceOfThreads(): Map<string, number> {
  const nice = readdirSync('/proc/self/task').flatMap((id) => {
    try {
      const stat = readFileSync(`/proc/self/task/${id}/stat`, 'utf8');
      // Behind the name, which may hold anything; the 19th value of all.
      return [[id, Number(stat.slice(stat.lastIndexOf(')') + 2).split(' ')[16])] as const];
    } catch {
      return []; // a thread that has just ended
    }
  });
  return new Map(nice);
}

test('compute threads have the priority of their process, so that others leave them a fair share', async () => {
  const before = niceOfThreads();
  const device = openDevice('cpu', { threads: 3 });
  await device.ops
    .add({ x: device.tensor(random(1 << 20)), y: device.tensor(random(1 << 20)) })
    .z.readFloats();
  const after = niceOfThreads();
  const started = [...after.keys()].filter((id) => !before.has(id));
  expect(started.length).toBeGreaterThanOrEqual(3);
  const own = after.get(String(process.pid));
  expect(started.map((id) => after.get(id))).toEqual(started.map(() => own));
  device.dispose();
});
