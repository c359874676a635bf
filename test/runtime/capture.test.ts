// Captured graphs: the bits of eager ops, memory of their own, fixed buffers whose values may change.
import { afterAll, beforeAll, expect, test } from 'vitest';
import { DisposedError, type StepTrainError } from '../../src/native/errors.js';
import type { Device } from '../../src/runtime/device.js';
import type { Tensor } from '../../src/runtime/tensor.js';
import { openTest } from '../ops/devices.js';
import { random } from '../ops/numbers.js';

const ROWS = 5;
const SIZE = 48;

let device: Device;
beforeAll(() => {
  device = openTest();
});
afterAll(() => device.dispose());

/** Fixed buffers, as in a decode step. */
function buffers(seed: number) {
  return {
    x: device.tensor(random(16 * SIZE, seed), [16, SIZE]),
    rows: device.tensor(Int32Array.from([3, 0, 15, 7, 3])),
    weight: device.tensor(random(SIZE, seed + 1)),
    state: device.zeros([ROWS, SIZE]),
  };
}
type Buffers = ReturnType<typeof buffers>;

/** Several ops with intermediates that the scope drops, one of them updating `state` in place. */
function program({ x, rows, weight, state }: Buffers): Tensor {
  return device.scope(() => {
    const { y: chosen } = device.ops.gather_rows({ x, rows });
    const { y: normed } = device.ops.rmsnorm({ x: chosen, weight, eps: 1e-6 });
    const { y: gated } = device.ops.swiglu({ gate: normed, up: chosen });
    device.ops.axpy({ y: state, x: gated, factor: 0.5 });
    return device.ops.add({ x: gated, y: state }).z;
  });
}

function dispose(...all: (Buffers | Tensor)[]): void {
  for (const each of all) {
    if ('dispose' in each) each.dispose();
    else for (const tensor of Object.values(each)) tensor.dispose();
  }
}

test('every replay has the bits of the eager ops', async () => {
  const [eager, captured] = [buffers(1), buffers(1)];
  const graph = device.capture(() => program(captured));
  expect(await captured.state.readFloats()).toEqual(new Float32Array(ROWS * SIZE));
  for (let round = 0; round < 3; round++) {
    const expected = program(eager);
    graph.replay();
    expect(await graph.result.readFloats()).toEqual(await expected.readFloats());
    expect(await captured.state.readFloats()).toEqual(await eager.state.readFloats());
    expected.dispose();
  }
  graph.dispose();
  dispose(eager, captured, graph.result);
});

test('a replay reads the current values of fixed buffers', async () => {
  const [eager, captured] = [buffers(1), buffers(1)];
  const graph = device.capture(() => program(captured));
  for (let round = 2; round < 5; round++) {
    for (const set of [eager, captured]) {
      set.x.write(random(16 * SIZE, round));
      set.rows.write(Int32Array.from({ length: ROWS }, (_, i) => (i * round) % 16));
    }
    const expected = program(eager);
    graph.replay();
    expect(await graph.result.readFloats()).toEqual(await expected.readFloats());
    expected.dispose();
  }
  graph.dispose();
  dispose(eager, captured, graph.result);
});

test('a queued replay reads values written before it, not after', async () => {
  const x = device.tensor(new Float32Array([1]));
  const sum = device.zeros([1]);
  const graph = device.capture(() => device.ops.axpy({ y: sum, x, factor: 1 }));
  for (const value of [1, 10, 100]) {
    x.write(new Float32Array([value]));
    graph.replay();
  }
  expect(Array.from(await sum.readFloats())).toEqual([111]);
  graph.dispose();
  dispose(x, sum);
});

test('the graph owns its memory: no later tensor shares it', async () => {
  const [eager, captured] = [buffers(1), buffers(1)];
  const graph = device.capture(() => program(captured));
  const expected = program(eager);
  const others = Array.from({ length: 64 }, () =>
    device.tensor(new Float32Array(ROWS * SIZE).fill(Number.NaN)),
  );
  for (const other of others.splice(0, 32)) other.dispose();
  graph.replay();
  expect(await graph.result.readFloats()).toEqual(await expected.readFloats());
  for (const other of others)
    expect(await other.readFloats()).toEqual(new Float32Array(ROWS * SIZE).fill(Number.NaN));
  graph.dispose();
  dispose(eager, captured, expected, graph.result, ...others);
});

test('a disposed graph frees its memory, and a queued replay still finishes', async () => {
  const captured = buffers(1);
  const before = device.stats();
  const graph = device.capture(() => program(captured));
  expect(device.stats().liveBytes).toBeGreaterThan(before.liveBytes);
  for (let i = 0; i < 100; i++) graph.replay();
  graph.result.dispose();
  graph.dispose();
  graph.dispose();
  await device.synchronize();
  // The pool is freed by the next release after the last replay.
  device.capture(() => undefined).dispose();
  expect(device.stats()).toMatchObject({ liveBytes: before.liveBytes, tensors: before.tensors });
  dispose(captured);
});

test('a replay after dispose throws', () => {
  const captured = buffers(1);
  const graph = device.capture(() => program(captured));
  graph.dispose();
  expect(() => graph.replay()).toThrow(DisposedError);
  dispose(captured, graph.result);
});

test.each<[string, RegExp, (x: Tensor) => unknown]>([
  ['a new tensor', /tensors cannot be created inside capture/, () => device.empty([3])],
  ['a tensor of values', /inside capture/, () => device.tensor(new Float32Array(3))],
  ['an upload', /uploads cannot be captured/, (x) => x.write(new Float32Array(2))],
  ['another capture', /captures do not nest/, () => device.capture(() => undefined)],
])('%s inside capture throws, and the device still works', async (_, message, inside) => {
  const x = device.tensor(new Float32Array([1, 2]));
  const before = device.stats();
  expect(() => device.capture(() => inside(x))).toThrow(
    expect.objectContaining({ code: 'E_CAPTURE', message: expect.stringMatching(message) }) as StepTrainError,
  );
  expect(device.stats()).toMatchObject({ liveBytes: before.liveBytes, tensors: before.tensors });
  const { y } = device.ops.scale({ x, factor: 3 });
  expect(Array.from(await y.readFloats())).toEqual([3, 6]);
  dispose(x, y);
});

test('a read inside capture rejects', async () => {
  const x = device.tensor(new Float32Array([1, 2]));
  let reading: Promise<unknown> | undefined;
  device
    .capture(() => {
      reading = x.read();
      reading.catch(() => undefined);
    })
    .dispose();
  await expect(reading).rejects.toMatchObject({ code: 'E_CAPTURE' });
  dispose(x);
});

test('a replay inside capture throws', () => {
  const graph = device.capture(() => undefined);
  expect(() => device.capture(() => graph.replay())).toThrow(/a replay cannot be captured/);
  graph.dispose();
});

test('the device still works after a function throws inside capture', async () => {
  const captured = buffers(1);
  const before = device.stats();
  expect(() =>
    device.capture(() => {
      program(captured);
      throw new Error('changed my mind');
    }),
  ).toThrow('changed my mind');
  expect(device.stats()).toMatchObject({ liveBytes: before.liveBytes, tensors: before.tensors });
  const result = program(captured);
  await result.read();
  dispose(captured, result);
});

test('graphs of one pool are as large as the largest of them, and each gives its own result', async () => {
  const sizes = [4000, 64, 1000, 3000];
  const inputs = sizes.map((size, i) => device.tensor(random(size * SIZE, i), [size, SIZE]));
  const chain = (x: Tensor) =>
    device.scope(() => {
      const { y } = device.ops.scale({ x, factor: 2 });
      return device.ops.add({ x: y, y: x }).z;
    });
  const before = device.stats().liveBytes;
  const pool = device.graphPool();
  const first = device.capture(() => chain(inputs[0] as Tensor), pool);
  const largest = device.stats().liveBytes - before;
  expect(largest).toBeGreaterThan(0);
  const graphs = [first, ...inputs.slice(1).map((x) => device.capture(() => chain(x), pool))];
  expect(device.stats().liveBytes - before).toBe(largest);
  for (const round of [0, 1]) {
    for (const [i, graph] of graphs.entries()) {
      graph.replay();
      const x = random((sizes[i] as number) * SIZE, i);
      const expected = Buffer.from(x.map((value) => 3 * value).buffer);
      expect(expected.equals(Buffer.from(await graph.result.readBytes())), `${i}, round ${round}`).toBe(true);
    }
  }
  dispose(...graphs.map(({ result }) => result));
  for (const graph of graphs) graph.dispose();
  pool.dispose();
  pool.dispose();
  device.capture(() => undefined).dispose();
  expect(device.stats().liveBytes).toBe(before);
  expect(() => device.capture(() => undefined, pool)).toThrow(DisposedError);
  dispose(...inputs);
});

test('a graph of a pool cannot read what another one of it made', () => {
  const x = device.tensor(new Float32Array([1, 2]));
  const pool = device.graphPool();
  const first = device.capture(() => device.ops.scale({ x, factor: 2 }).y, pool);
  expect(() => device.capture(() => device.ops.scale({ x: first.result, factor: 2 }).y, pool)).toThrow(
    /another graph of the same pool .* copy it before the capture/,
  );
  device.capture(() => device.ops.scale({ x: first.result, factor: 2 }).y).result.dispose();
  first.dispose();
  pool.dispose();
  dispose(first.result, x);
});
