import { afterAll, expect, test } from 'vitest';
import { addon, COMMAND } from '../../src/native/addon.js';
import { openDevice } from '../../src/runtime/device.js';

const { readSignatures } = await import(new URL('../../scripts/build/op-types.mjs', import.meta.url).href);

const device = openDevice('cpu', { threads: 1 });
const { ops } = device;
afterAll(() => device.dispose());

const x = device.tensor(Float32Array.of(1, 2, 3, 4), [2, 2]);
const weight = device.tensor(Float32Array.of(1, 1));
const values = async (tensor: { read(): Promise<ArrayLike<number>> }) => Array.from(await tensor.read());

test('the types of the ops are made of the signatures that the addon has', () => {
  const own = addon()
    .signatures()
    .map(({ name, text, inputs, outputs, scalars }) => {
      const tensors = (list: typeof inputs) => list.map(({ name, optional }) => ({ name, optional }));
      return {
        name,
        text,
        inputs: tensors(inputs),
        scalars: scalars.map(({ name, type, fallback }) => ({
          name,
          type,
          isRequired: fallback === undefined,
        })),
        outputs: tensors(outputs),
      };
    });
  expect(readSignatures('.')).toEqual(own);
});

test('required outputs are returned by name, optional ones on request', () => {
  const plain = ops.rmsnorm({ x, weight, eps: 1e-6 });
  expect([plain.y.shape, plain.rstd.shape, plain.sum]).toEqual([[2, 2], [2], undefined]);
  const asked: boolean = [true].includes(true);
  const both = ops.rmsnorm({ x, weight, eps: 1e-6, sum: asked });
  expect(both.sum?.shape).toEqual([2, 2]);
  expect(ops.rmsnorm({ x, weight, eps: 1e-6, sum: false }).sum).toBeUndefined();
});

test('a given output is written and returned', async () => {
  const [y, sum] = [device.empty([2, 2]), device.empty([2, 2])];
  const made = ops.rmsnorm({ x, weight, residual: x, eps: 1e-6, y, sum });
  expect([made.y === y, made.sum === sum]).toEqual([true, true]);
  expect(await values(sum)).toEqual([2, 4, 6, 8]);
});

test('an absent or undefined scalar gets the default of its signature', async () => {
  const given = {
    rewards: device.tensor(Float32Array.of(1, 2, 6)),
    offsets: device.tensor(Int32Array.of(0, 3)),
  };
  const advantages = async (kind?: 'grpo' | 'mean') =>
    values(ops.group_advantages({ ...given, kind }).advantages);
  expect(await advantages()).toEqual(await advantages('grpo'));
  expect(await advantages('mean')).toEqual([-2, -1, 3]);
  const whitened = (bessel?: boolean) => values(ops.whiten({ x: given.rewards, bessel }).y);
  expect(await whitened()).toEqual(await whitened(true));
  expect(await whitened()).not.toEqual(await whitened(false));
});

test('a missing or undefined required scalar and an unknown name are refused', () => {
  // @ts-expect-error: eps is required
  expect(() => ops.rmsnorm({ x, weight })).toThrow(/^rmsnorm: eps is required: rmsnorm\(x:/);
  // @ts-expect-error: value is required
  expect(() => ops.fill({ x, value: undefined })).toThrow('fill: value is required');
  // @ts-expect-error: the scalar is called eps
  expect(() => ops.rmsnorm({ x, weight, epsilon: 1 })).toThrow(
    "rmsnorm has no argument 'epsilon': rmsnorm(x:",
  );
  // @ts-expect-error: w is required
  expect(() => ops.linear({ x })).toThrow('linear: w is required');
});

test('arguments of a wrong type are refused with the expected and the found type', () => {
  const rewards = device.zeros([2]);
  const offsets = device.tensor(Int32Array.of(0, 2));
  // @ts-expect-error: no such kind
  expect(() => ops.group_advantages({ rewards, offsets, kind: 'best' })).toThrow(
    'group_advantages: kind must be grpo, mean or leave_one_out, found "best"',
  );
  // @ts-expect-error: a kind is a name
  expect(() => ops.group_advantages({ rewards, offsets, kind: 0 })).toThrow('leave_one_out, found 0');
  expect(() => ops.cast({ x, dtype: 'i32' })).toThrow('cast: dtype must be f32 or bf16, found "i32"');
  // @ts-expect-error: tanh is a boolean
  expect(() => ops.gelu({ x, tanh: 1 })).toThrow('gelu: tanh must be false or true, found 1');
  // @ts-expect-error: eps is a number
  expect(() => ops.rmsnorm({ x, weight, eps: '1' })).toThrow('rmsnorm: eps must be a number, found "1"');
  expect(() => ops.scatter_rows({ x, rows: offsets, T: 1.5 })).toThrow(
    'scatter_rows: T must be a whole number, found 1.5',
  );
  // @ts-expect-error: x is a tensor
  expect(() => ops.relu({ x: [1, 2] })).toThrow('relu: x must be a tensor, found [1,2]');
  // @ts-expect-error: y is no optional output
  expect(() => ops.relu({ x, y: true })).toThrow('relu: y must be a tensor, found true');
});

test('the addon refuses a number that has no name', () => {
  const commands = new Float64Array(addon().commandLength);
  const native = new (addon().Device)('cpu', 1, '', undefined, commands);
  const gelu = addon()
    .signatures()
    .findIndex(({ name }) => name === 'gelu');
  commands.set([gelu, native.allocate(0, [4]), -1]);
  commands[COMMAND.scalars] = 2;
  expect(() => native.enqueue()).toThrow('gelu: tanh must stand for false or true, got 2');
  native.dispose();
});
