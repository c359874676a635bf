import { describe, expect, it } from 'vitest';
import type { Device } from '../../src/runtime/device.js';
import { random } from '../ops/numbers.js';
import { gpus, skipped } from './gpu.js';
import { type Call, openBoth, results } from './two-devices.js';

const sizes = [0, 1, 7, 8, 33, 2048, 5003];
const floats = ['f32', 'bf16'] as const;

describe.skipIf(gpus.length === 0)(`memory on cuda:0${skipped}`, () => {
  let gpu: Device;
  let cpu: Device;
  openBoth((...opened) => {
    [gpu, cpu] = opened;
  });
  const same = async (call: Call) => {
    expect(await results(gpu, call)).toEqual(await results(cpu, call));
  };

  it('uploads and downloads any number of values', async () => {
    for (const size of [0, 1, 255, 524_288, 3_000_001]) {
      const values = random(size);
      const x = gpu.tensor(values);
      expect(Buffer.compare(Buffer.from((await x.read()).buffer), Buffer.from(values.buffer))).toBe(0);
      x.dispose();
    }
    const bytes = Uint8Array.of(1, 2, 3, 4, 5);
    expect(Array.from(await gpu.tensor(bytes).read())).toEqual([1, 2, 3, 4, 5]);
  });

  it('does many small writes in order', async () => {
    const x = gpu.zeros([64]);
    const sum = gpu.zeros([64]);
    for (let i = 1; i <= 300; i++) {
      x.write(new Float32Array(64).fill(i));
      gpu.ops.axpy({ y: sum, x, factor: 1 });
    }
    expect(Array.from(await sum.read())).toEqual(new Array(64).fill((300 * 301) / 2));
  });

  it.each(sizes)('gives the bits of the CPU for %i elements', async (n) => {
    const [a, b] = [random(n, 1), random(n, 2)];
    for (const dtype of floats) {
      for (const offset of [0, 1]) {
        const x = { values: a, shape: [n], dtype, offset };
        const y = { values: b, shape: [n], dtype };
        await same({ op: 'copy', tensors: { x } });
        for (const to of ['f32', 'bf16'] as const)
          await same({ op: 'cast', tensors: { x }, settings: { dtype: to } });
        await same({ op: 'add', tensors: { x, y } });
        await same({ op: 'scale', tensors: { x }, settings: { factor: 0.3 } });
        for (const from of floats) {
          const settings = { factor: -0.7 };
          await same({ op: 'axpy', tensors: { y, x: { ...x, dtype: from } }, settings, written: ['y'] });
        }
        await same({ op: 'fill', tensors: { x }, settings: { value: 1.2345 }, written: ['x'] });
      }
    }
    const integers = { values: new Int32Array(n), shape: [n] };
    await same({ op: 'fill', tensors: { x: integers }, settings: { value: -7 }, written: ['x'] });
    const bytes = { values: new Uint8Array(n), shape: [n] };
    await same({ op: 'fill', tensors: { x: bytes }, settings: { value: 200 }, written: ['x'] });
    await same({ op: 'copy', tensors: { x: bytes } });
  });

  it.each([
    [3, 5],
    [8, 16],
    [17, 40],
  ])('packs and unpacks a weight of %i by %i', async (n, k) => {
    const values = random(n * k);
    for (const dtype of ['f32', 'bf16'] as const) {
      const unpacked = async (device: Device) => {
        const { y } = device.ops.pack_weight({ w: device.tensor(values, [n, k]), dtype });
        return device.ops.unpack_weight({ w: y, dtype: 'f32' }).y.readFloats();
      };
      expect(await unpacked(gpu)).toEqual(await unpacked(cpu));
    }
  });

  it('counts one launch for each op', async () => {
    const x = gpu.tensor(random(100));
    await gpu.synchronize();
    const before = gpu.stats().launches;
    gpu.ops.copy({ x });
    gpu.ops.cast({ x, dtype: 'bf16' });
    gpu.ops.fill({ x, value: 1 });
    gpu.ops.add({ x, y: x });
    gpu.ops.scale({ x, factor: 2 });
    gpu.ops.axpy({ y: x, x, factor: 2 });
    await gpu.synchronize();
    expect(gpu.stats().launches - before).toBe(6);
  });

  it('reports its name and memory', () => {
    const info = gpu.info();
    expect(info.name).toBe('cuda:0');
    expect(info.description).toBe(gpus[0]);
    expect(info.isa).toMatch(/^sm_\d+$/);
    expect(info.memoryTotal).toBeGreaterThan(0);
    expect(info.memoryFree).toBeLessThanOrEqual(info.memoryTotal);
  });
});
