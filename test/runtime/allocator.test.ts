// Accounting of device memory: live, peak and reserved bytes, and the lifetime of views.
import { afterAll, beforeEach, describe, expect, test } from 'vitest';
import { DisposedError, type StepTrainError } from '../../src/native/errors.js';
import { type Device, openDevice } from '../../src/runtime/device.js';

let device: Device;
beforeEach(() => {
  device?.dispose();
  device = openDevice('cpu', { threads: 1 });
});
afterAll(() => device.dispose());

const KiB = 1024;
const MiB = 1024 * KiB;

describe('accounting', () => {
  test('live bytes are those of the tensors, for every dtype', () => {
    expect(device.stats()).toMatchObject({ liveBytes: 0, peakBytes: 0, tensors: 0 });
    device.empty([64, 64]);
    expect(device.stats()).toMatchObject({ liveBytes: 16 * KiB, tensors: 1 });
    device.empty([64, 64], 'bf16');
    expect(device.stats()).toMatchObject({ liveBytes: 24 * KiB, tensors: 2 });
    device.empty([64, 64], 'u8');
    expect(device.stats()).toMatchObject({ liveBytes: 28 * KiB, tensors: 3 });
  });

  test('the peak is kept until it is reset', () => {
    const [a, b] = [device.empty([1024]), device.empty([2048])];
    b.dispose();
    expect(device.stats()).toMatchObject({ liveBytes: 4 * KiB, peakBytes: 12 * KiB });
    device.resetPeak();
    expect(device.stats()).toMatchObject({ liveBytes: 4 * KiB, peakBytes: 4 * KiB });
    a.dispose();
    expect(device.stats()).toMatchObject({ liveBytes: 0, peakBytes: 4 * KiB, tensors: 0 });
  });

  test('freed memory is reused, also in other sizes, before more is reserved', () => {
    device.empty([16 * MiB]).dispose();
    const { reservedBytes } = device.stats();
    expect(reservedBytes).toBeGreaterThanOrEqual(64 * MiB);
    for (let round = 0; round < 10; round++) {
      const parts = [1, 2, 3, 4, 5].map((size) => device.empty([size * MiB]));
      // Out of order, so that neighbours have to be merged again.
      for (const i of [1, 3, 0, 4, 2]) parts[i]?.dispose();
      device.empty([16 * MiB]).dispose();
      expect(device.stats().reservedBytes).toBe(reservedBytes);
    }
  });

  test('the outputs of an op count, its arguments are not copied', () => {
    const x = device.zeros([1024]);
    const { y } = device.ops.copy({ x });
    expect(device.stats()).toMatchObject({ liveBytes: 8 * KiB, tensors: 2 });
    device.ops.copy({ x, y });
    expect(device.stats()).toMatchObject({ liveBytes: 8 * KiB, tensors: 2 });
  });

  test('a refused op frees its memory', () => {
    const [x, y] = [device.zeros([1024]), device.zeros([3])];
    const { tensors, liveBytes } = device.stats();
    expect(() => device.ops.add({ x, y })).toThrow(/add: y must have 1024 elements/);
    expect(device.stats()).toMatchObject({ tensors, liveBytes });
  });

  test('an allocation beyond the memory is refused with the sizes, and the device still works', async () => {
    const x = device.tensor(new Float32Array([1, 2]));
    expect(() => device.empty([2 ** 45])).toThrow(
      expect.objectContaining({ code: 'E_MEMORY', message: expect.stringMatching(/140737488355328 bytes/) }),
    );
    expect(Array.from(await x.readFloats())).toEqual([1, 2]);
  });
});

describe('lifetime of views', () => {
  test('the buffer lives as long as its last view', async () => {
    const whole = device.tensor(Float32Array.from({ length: 2048 }, (_, i) => i));
    const half = whole.slice(1024, 2048);
    const row = half.reshape([64, 16]).slice(1, 2);
    whole.dispose();
    half.dispose();
    expect(device.stats().liveBytes).toBe(8 * KiB);
    device.tensor(new Float32Array(2048).fill(-1));
    expect((await row.readFloats())[0]).toBe(1040);
  });

  test('disposing the last view frees the buffer', () => {
    const whole = device.empty([2048]);
    const views = [whole.slice(0, 10), whole.view(5, [2, 3]), whole.reshape([2, 1024])];
    for (const view of views) view.dispose();
    expect(device.stats().liveBytes).toBe(8 * KiB);
    whole.dispose();
    expect(device.stats()).toMatchObject({ liveBytes: 0, tensors: 0 });
  });

  test('a view of a disposed tensor is refused', () => {
    const x = device.empty([4]);
    x.dispose();
    expect(() => x.slice(0, 1)).toThrow(DisposedError);
    expect(() => x.reshape([2, 2])).toThrow(DisposedError);
    expect(() => x.alias()).toThrow(DisposedError);
  });

  test('a view outside the tensor is refused', () => {
    const x = device.empty([4, 3]);
    expect(() => x.slice(2, 5)).toThrow(/slice 2\.\.5 lies outside the 4 rows/);
    expect(() => x.slice(-1, 2)).toThrow(/lies outside/);
    expect(() => x.slice(2, 1)).toThrow(/lies outside/);
    expect(() => x.reshape([13])).toThrow(expect.objectContaining({ code: 'E_SHAPE' }) as StepTrainError);
    expect(() => x.view(10, [3])).toThrow(/3 elements at 10 does not fit into 12/);
    expect(() => x.view(-1, [3])).toThrow(/does not fit/);
  });

  test('a view of a view cannot reach the rest of the buffer', () => {
    const window = device.zeros([100]).slice(10, 20);
    expect(() => window.view(0, [11])).toThrow(/11 elements at 0 does not fit into 10/);
  });
});
