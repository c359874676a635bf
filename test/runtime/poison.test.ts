// A failure inside a kernel poisons the queue: the next wait rejects with the op, the reason and the scope.
import { afterEach, expect, test, vi } from 'vitest';
import { StepTrainError } from '../../src/native/errors.js';
import { type Device, openDevice } from '../../src/runtime/device.js';

let device: Device | undefined;
afterEach(() => {
  device?.dispose();
  vi.unstubAllEnvs();
});

/** Queues four ops; the third reads row 70000 of 100, the fourth is valid. */
function poisoned() {
  device = openDevice('cpu');
  const opened = device;
  const weight = opened.zeros([100, 8]);
  const ids = opened.tensor(Int32Array.from([0, 99, 70_000]));
  const rows = opened.scope(() => opened.ops.embedding({ ids, weight, dtype: 'f32' }).y, 'layer 3');
  const after = opened.ops.scale({ x: weight, factor: 2 }).y;
  return { device: opened, weight, rows, after };
}

async function rejection(promise: Promise<unknown>): Promise<StepTrainError> {
  const error = await promise.then(
    () => undefined,
    (reason: unknown) => reason,
  );
  expect(error).toBeInstanceOf(StepTrainError);
  return error as StepTrainError;
}

test('queueing succeeds; the next read rejects with op, number, scope, index and limit', async () => {
  const { rows } = poisoned();
  const error = await rejection(rows.read());
  expect(error).toMatchObject({ code: 'E_RANGE', op: 'embedding', opNumber: 3, scope: 'layer 3' });
  expect(error.message).toBe('embedding: ids[2] is 70000, outside 0..99 (op embedding #3 in layer 3)');
});

test('every wait that began rejects with the first failure, also for unrelated tensors', async () => {
  const { device, after, weight } = poisoned();
  // These begin before the failure is known.
  for (const wait of [after.read(), weight.read(), device.synchronize()]) {
    expect(await rejection(wait)).toMatchObject({ code: 'E_RANGE', op: 'embedding', opNumber: 3 });
  }
});

test('what is asked of it once a failure is known is refused, with the failure as the cause', async () => {
  const { device, weight, rows } = poisoned();
  expect(device.failure).toBeUndefined();
  const first = await rejection(rows.read());
  expect(device.failure).toBe(first);
  const calls: (() => unknown)[] = [
    () => weight.read(),
    () => weight.write(new Float32Array(800)),
    () => device.synchronize(),
    () => device.zeros([1]),
    () => device.ops.copy({ x: weight }),
    () => device.capture(() => weight),
  ];
  for (const call of calls) {
    const error = await rejection(Promise.resolve().then(call));
    expect(error).toMatchObject({ code: 'E_DEVICE_FAILED', cause: first });
    expect(error.message).toBe(
      'this device failed earlier (embedding: ids[2] is 70000, outside 0..99 (op embedding #3 in layer 3)): ' +
        'dispose of it and open another',
    );
  }
  expect(device.stats().tensors).toBeGreaterThan(0);
  expect(device.info().name).toBe('cpu');
});

test('a refusal before an op is queued is no failure of the device', async () => {
  device = openDevice('cpu');
  expect(() => device?.ops.copy({ x: undefined as never })).toThrow();
  await expect(device.synchronize()).resolves.toBeUndefined();
  expect(device.failure).toBeUndefined();
});

test('reads that were queued before the failing op resolve', async () => {
  device = openDevice('cpu');
  const weight = device.zeros([100, 8]);
  const before = weight.read();
  device.ops.embedding({ ids: device.tensor(Int32Array.from([-1])), weight, dtype: 'f32' });
  expect(await before).toEqual(new Float32Array(800));
  expect((await rejection(weight.read())).message).toMatch(/ids\[0\] is -1, outside 0\.\.99/);
});

test('another device of the process is not affected', async () => {
  const { rows } = poisoned();
  const other = openDevice('cpu');
  const x = other.tensor(new Float32Array([1]));
  await rejection(rows.read());
  expect(Array.from(await x.readFloats())).toEqual([1]);
  other.dispose();
});

test('a poisoned device can be disposed, and a new one opened', async () => {
  const { device: first, rows } = poisoned();
  await rejection(rows.read());
  first.dispose();
  device = openDevice('cpu');
  expect(Array.from(await device.tensor(new Float32Array([2])).readFloats())).toEqual([2]);
});

test('a failure inside a replay names the replay', async () => {
  device = openDevice('cpu');
  const [weight, ids] = [device.zeros([4, 2]), device.tensor(Int32Array.from([0]))];
  const graph = device.capture(() => device!.ops.embedding({ ids, weight, dtype: 'f32' }).y);
  graph.replay();
  await graph.result.read();
  ids.write(Int32Array.from([4]));
  graph.replay();
  const error = await rejection(graph.result.read());
  expect(error).toMatchObject({ code: 'E_RANGE', op: 'replay' });
  expect(error.message).toMatch(/ids\[0\] is 4, outside 0\.\.3/);
});

test('STEPTRAIN_STACKS=1 adds the stack of the call that queued the op', async () => {
  const plain = await rejection(poisoned().rows.read());
  expect(plain.stack).not.toContain('queued by');
  vi.stubEnv('STEPTRAIN_STACKS', '1');
  const traced = await rejection(poisoned().rows.read());
  expect(traced.stack).toMatch(/queued by:\n(.*\n)*.*\bpoisoned\b.*poison\.test\.ts/);
});
