// A device with little memory: queued ops keep the memory that they use, and unused memory is given back to the system
// before an allocation is refused.
import { afterEach, describe, expect, test } from 'vitest';
import type { StepTrainError } from '../../src/native/errors.js';
import { type Device, openDevice } from '../../src/runtime/device.js';
import type { Tensor } from '../../src/runtime/tensor.js';
import { gpus } from '../cuda/gpu.js';

const MiB = 2 ** 20;
const LIMIT = 74 * MiB; // the segment of small tensors, 32 MiB, and 42
const [ROWS, COLUMNS] = [1024, 9 * 1024]; // of f32: 36 MiB
const LARGER = 10 * MiB; // elements of f32: 40 MiB, which fit only in place of the 36

let device: Device;
afterEach(() => device.dispose());

describe.each(['cpu', ...(gpus.length > 0 ? ['cuda:0'] : [])])('a limit of memory on %s', (name) => {
  const open = () => {
    device = openDevice(name, { memoryLimit: LIMIT });
    return device;
  };
  const fill = (x: Tensor, value: number) => device.ops.fill({ x, value });
  /** The first column of some rows, read in the order of the queue. */
  const sample = (x: Tensor) => {
    const rows = device.tensor(Int32Array.of(0, 511, 1023));
    const { y } = device.ops.gather_rows({ x, rows });
    rows.dispose();
    return async () => {
      const values = await y.readFloats();
      y.dispose();
      return [values[0], values[COLUMNS], values[3 * COLUMNS - 1]];
    };
  };

  test('queued ops can still use a disposed tensor whose memory another allocation needs', async () => {
    open();
    const x = device.empty([ROWS, COLUMNS]);
    for (const value of [1, 2, 3]) fill(x, value);
    const sampled = sample(x);
    x.dispose();
    const larger = device.empty([LARGER]); // takes the place of x, whose ops are queued
    fill(larger, 4);
    expect(await sampled()).toEqual([3, 3, 3]);
    expect((await larger.slice(LARGER - 2, LARGER).readFloats()).join()).toBe('4,4');
    expect(device.stats().reservedBytes).toBeLessThanOrEqual(LIMIT);
  });

  test('queued ops can still use a disposed tensor when the outputs of an op need its memory', async () => {
    open();
    const x = device.empty([ROWS, COLUMNS]);
    fill(x, 5);
    const sampled = sample(x);
    x.dispose();
    const small = device.tensor(new Int32Array(1152)); // indices of row 0
    const row = device.tensor(new Float32Array(COLUMNS).fill(6), [1, COLUMNS]);
    const { y } = device.ops.gather_rows({ x: row, rows: small }); // 40.5 MiB
    expect(await sampled()).toEqual([5, 5, 5]);
    expect((await y.slice(1151, 1152).readFloats()).at(-1)).toBe(6);
  });

  test('the memory of a disposed graph is given back once its replays have run', async () => {
    open();
    const x = device.empty([ROWS, COLUMNS / 2]);
    const graph = device.capture(() => {
      fill(x, 7);
      return device.ops.scale({ x, factor: 2 }).y;
    });
    graph.replay();
    const rows = device.tensor(Int32Array.of(1023));
    const { y } = device.ops.gather_rows({ x: graph.result, rows });
    graph.dispose();
    for (const tensor of [graph.result, x]) tensor.dispose();
    const larger = device.empty([LARGER]);
    fill(larger, 8);
    expect((await y.readFloats()).at(-1)).toBe(14);
    expect((await larger.slice(0, 1).readFloats())[0]).toBe(8);
  });

  test('a graph keeps the tensors that it uses, and its outputs outlive it', async () => {
    open();
    const x = device.empty([ROWS, COLUMNS / 2]);
    const graph = device.capture(() => {
      fill(x, 9);
      return device.ops.scale({ x, factor: 2 }).y;
    });
    x.dispose();
    expect(() => device.empty([LARGER])).toThrow(/out of device memory/);
    graph.replay();
    graph.dispose();
    // What it used is given back once its replay has run; what it made is not.
    fill(device.empty([LARGER]), 0);
    expect(() => device.empty([ROWS, COLUMNS / 2])).toThrow(/out of device memory/);
    expect((await graph.result.readFloats()).at(-1)).toBe(18);
    graph.result.dispose();
    device.empty([ROWS, COLUMNS / 2]);
  });

  test('a capture that runs out of memory gives its memory back', async () => {
    open();
    const x = device.empty([ROWS, COLUMNS]);
    fill(x, 1);
    const twice = () => [1, 2].map((factor) => device.ops.scale({ x, factor }).y);
    expect(() => device.capture(twice)).toThrow(expect.objectContaining({ code: 'E_MEMORY' }));
    expect(await sample(x)()).toEqual([1, 1, 1]);
    x.dispose();
    device.empty([LARGER]);
  });

  test('pending reads are settled, also if the queue has failed', async () => {
    open();
    const x = device.empty([ROWS, COLUMNS]);
    fill(x, 1);
    const read = x.readFloats();
    const rows = device.tensor(Int32Array.of(ROWS));
    device.ops.gather_rows({ x, rows });
    x.dispose();
    const larger = device.empty([LARGER]);
    expect((await read).at(-1)).toBe(1);
    await expect(larger.readFloats()).rejects.toThrow(/gather_rows: rows\[0\] is 1024/);
    larger.dispose();
    expect(() => device.empty([LARGER])).toThrow(/^this device failed earlier/);
  });

  test('a device with work in its queue can be disposed after memory ran out', () => {
    open();
    const x = device.empty([ROWS, COLUMNS]);
    for (const value of [1, 2, 3]) fill(x, value);
    expect(() => device.empty([LARGER])).toThrow(/out of device memory/);
    fill(x, 4);
  });

  test('the refusal names the limit, and the device reports the free memory', () => {
    open();
    expect(device.info().memoryTotal).toBe(LIMIT);
    device.empty([ROWS, COLUMNS]);
    expect(device.info().memoryFree).toBe(LIMIT - 36 * MiB);
    expect(() => device.empty([LARGER])).toThrow(
      `out of device memory: ${4 * LARGER} bytes asked for, ${36 * MiB} bytes live, ${36 * MiB} bytes reserved, ` +
        `at most ${LIMIT} bytes allowed`,
    );
  });
});

test.each([0, -1, 1.5, Number.NaN, Number.POSITIVE_INFINITY])('a limit of %s is refused', (memoryLimit) => {
  expect(() => openDevice('cpu', { memoryLimit })).toThrow(
    expect.objectContaining({ code: 'E_RANGE' }) as StepTrainError,
  );
});
