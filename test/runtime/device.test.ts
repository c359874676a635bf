import { inspect } from 'node:util';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { DisposedError, type StepTrainError } from '../../src/native/errors.js';
import { type Device, openDevice } from '../../src/runtime/device.js';

let device: Device;
beforeAll(() => {
  device = openDevice('cpu');
});
afterAll(() => device.dispose());

test('values are uploaded and read back unchanged, also as bf16', async () => {
  const x = device.tensor(new Float32Array([1, 2.5, -3, 0.1]), [2, 2]);
  expect(await x.read()).toEqual(new Float32Array([1, 2.5, -3, 0.1]));
  const y = device.tensor(new Float32Array([1, 2.5, -3, 0.1]), [4], 'bf16');
  expect(Array.from(await y.readFloats())).toEqual([1, 2.5, -3, 0.10009765625]);
  x.dispose();
  y.dispose();
});

test('an array is copied during the call', async () => {
  const values = new Float32Array([1, 2]);
  const x = device.tensor(values);
  values[0] = 9;
  expect(Array.from(await x.readFloats())).toEqual([1, 2]);
  x.dispose();
});

test('views share the buffer and keep it alive', async () => {
  const x = device.tensor(new Float32Array([0, 1, 2, 3, 4, 5]), [3, 2]);
  const row = x.slice(1, 3);
  x.dispose();
  expect(Array.from(await row.readFloats())).toEqual([2, 3, 4, 5]);
  row.write(new Float32Array([7, 7, 7, 7]));
  expect(Array.from(await row.readFloats())).toEqual([7, 7, 7, 7]);
  row.dispose();
});

test('a disposed tensor is refused, but a second dispose is not', () => {
  const x = device.empty([2]);
  x.dispose();
  x.dispose();
  expect(() => x.handle).toThrow(DisposedError);
  expect(() => device.ops.copy({ x })).toThrow(/after it was disposed/);
});

test('an alias outlives the owner', async () => {
  const x = device.tensor(new Float32Array([4]));
  const y = x.alias();
  x.dispose();
  expect(Array.from(await y.readFloats())).toEqual([4]);
  y.dispose();
});

test('a scope disposes its tensors except those in its result, at any depth', () => {
  const before = device.stats().tensors;
  const kept = device.scope(() => {
    device.empty([10]);
    return { deep: [new Map([['x', device.empty([3])]])] };
  });
  expect(device.stats().tensors).toBe(before + 1);
  kept.deep[0]?.get('x')?.dispose();
  expect(device.stats().tensors).toBe(before);
});

test('a scope refuses a promise and disposes its tensors', () => {
  const before = device.stats().tensors;
  expect(() =>
    device.scope(async () => {
      device.empty([1]);
    }),
  ).toThrow(/synchronous/);
  expect(device.stats().tensors).toBe(before);
});

test('wrong shapes and dtypes are refused in the call with op, tensor, expected and found', () => {
  const x = device.empty([4, 3]);
  const w = device.empty([2, 5]);
  expect(() => device.ops.linear({ x, w })).toThrow(/linear: w must be \[N,K\] with K = 3, got \[2,5\]/);
  const ids = device.empty([4, 3], 'i32');
  expect(() => device.ops.linear({ x: ids, w })).toThrow(/linear: x must be f32 or bf16, got i32/);
  // @ts-expect-error: w is required
  expect(() => device.ops.linear({ x })).toThrow(/linear: w is required/);
  for (const tensor of [x, w, ids]) tensor.dispose();
});

test('errors carry a stable code', () => {
  expect(() => openDevice('tpu')).toThrow(
    expect.objectContaining({ code: 'E_UNSUPPORTED' }) as StepTrainError,
  );
  expect(() => openDevice('cpu', { isa: 'neon9' })).toThrow(/neon9.*offer/);
  expect(() => device.empty([-1])).toThrow(expect.objectContaining({ code: 'E_SHAPE' }) as StepTrainError);
});

test('a disposed device refuses work and rejects waits', async () => {
  const other = openDevice('cpu');
  const x = other.tensor(new Float32Array([1]));
  const waiting = x.read();
  other.dispose();
  await waiting.catch((error: unknown) => expect(error).toMatchObject({ code: 'E_CANCELLED' }));
  expect(() => other.empty([1])).toThrow(DisposedError);
  x.dispose();
});

test('more threads than can help are refused in one sentence', () => {
  for (const threads of [100_000, 3_000, -1, 1.5]) {
    expect(() => openDevice('cpu', { threads })).toThrow(
      /^threads: expected a whole number from 0 \(one per core\) to \d+ on this machine, found /,
    );
  }
});

test('arguments in the wrong order are shown by their beginning', () => {
  const values = new Float32Array(100_000).fill(0.1);
  const wrong = <T>(value: unknown) => value as T;
  expect(() => device.tensor(wrong('f32'), [100, 1000], wrong(values))).toThrow(
    /^a tensor is of f32, bf16, i32, u8, found a Float32Array of 100000$/,
  );
  expect(() => device.tensor(wrong([100, 1000]), wrong(values))).toThrow(
    /^expected a shape such as \[2, 3\], found a Float32Array of 100000; .* tensor\(values, shape, dtype\)$/,
  );
  expect(() => device.ops.fill({ x: device.empty([1]), value: wrong(values) })).toThrow(
    /^fill: value must be a number, found a Float32Array of 100000$/,
  );
  expect(() => openDevice('cpu', { threads: wrong(values) })).toThrow(/found a Float32Array of 100000$/);
});

test('a device is shown in a line, and ends with the block that uses it', async () => {
  const own = openDevice('cpu', { threads: 1 });
  const x = own.zeros([3]);
  expect(inspect(own)).toMatch(/^Device \{ cpu, \w+, 1 thread, 1 tensors of \d+ bytes \}$/);
  expect(inspect({ x }, { depth: 4 }).split('\n').length).toBeLessThan(20);
  own[Symbol.dispose]();
  expect(own.isDisposed).toBe(true);
  expect(inspect(own)).toBe('Device { disposed }');
});
