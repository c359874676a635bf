import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { type Device, openDevice } from '../../src/runtime/device.js';
import { random } from '../ops/numbers.js';
import { gpus, skipped } from './gpu.js';

const SCALARS = { lr: 1e-2, beta1: 0.9, beta2: 0.99, eps: 1e-8, step: 1, max_norm: 1, grad_scale: 1 };
const [T, N, K] = [24, 40, 72];
const MiB = 2 ** 20;

describe.skipIf(gpus.length === 0)(`capture on cuda:0${skipped}`, () => {
  let device: Device;
  beforeAll(() => {
    device = openDevice('cuda:0');
  });
  afterAll(() => device.dispose());

  /** Linear (f32 weights under bf16 activations: workspace), RMSNorm and AdamW on one set of buffers. */
  function buffers() {
    return {
      x: device.tensor(random(T * K, 1), [T, K], 'bf16'),
      w: device.tensor(random(N * K, 2), [N, K]),
      lora_a: device.tensor(random(8 * K, 3), [8, K]),
      lora_b: device.tensor(random(N * 8, 4), [N, 8]),
      weight: device.tensor(random(N, 5)),
      params: device.tensor(random(100, 6)),
      grads: device.tensor(random(100, 7)),
      exp_avg: device.zeros([100]),
      exp_avg_sq: device.zeros([100]),
      sizes: device.tensor(Int32Array.of(60, 40)),
      weight_decay: device.tensor(Float32Array.of(0.1, 0)),
    };
  }
  function step(b: ReturnType<typeof buffers>) {
    const { x, w, lora_a, lora_b, weight, ...optimizer } = b;
    const { y } = device.ops.linear({ x, w, lora_a, lora_b, scale: 0.5 });
    const normed = device.ops.rmsnorm({ x: y, weight, eps: 1e-5 });
    const { stats } = device.ops.adamw({ ...optimizer, ...SCALARS });
    return { y: normed.y, stats: stats };
  }

  it('equals eager bitwise, replay after replay', async () => {
    const [eager, captured] = [buffers(), buffers()];
    const graph = device.capture(() => step(captured));
    for (let i = 0; i < 3; i++) {
      const x = random(T * K, 20 + i);
      eager.x.write(x);
      captured.x.write(x);
      const want = step(eager);
      graph.replay();
      expect(await graph.result.y.readBytes()).toEqual(await want.y.readBytes());
      expect(await graph.result.stats.readBytes()).toEqual(await want.stats.readBytes());
      expect(await captured.params.readBytes()).toEqual(await eager.params.readBytes());
    }
    graph.dispose();
  });

  it('counts as many kernels per replay as for eager ops', async () => {
    const b = buffers();
    const launched = async (run: () => void) => {
      await device.synchronize();
      const before = device.stats();
      run();
      await device.synchronize();
      const after = device.stats();
      return [after.ops - before.ops, after.launches - before.launches];
    };
    const eager = await launched(() => step(b));
    const graph = device.capture(() => step(b));
    expect(await launched(() => graph.replay())).toEqual(eager);
    expect(await launched(() => graph.replay())).toEqual(eager);
    graph.dispose();
  });

  it('keeps its workspace when other ops need more, and frees it', async () => {
    const b = buffers();
    const graph = device.capture(() => step(b));
    graph.replay();
    const first = await graph.result.y.readBytes();
    const big = device.empty([600, 512]);
    device.ops.fill({ x: big, value: 1 });
    device.ops.linear({ x: device.tensor(random(1024), [2, 512], 'bf16'), w: big, scale: 1 });
    graph.replay();
    expect(await graph.result.y.readBytes()).toEqual(first);
    graph.dispose();
    await device.synchronize();
  });

  it('is not disturbed by other devices being opened and disposed, or by lack of memory', async () => {
    vi.stubEnv('STEPTRAIN_EMULATED_CAPTURE', '200'); // ms for which the emulator keeps a capture open
    const limited = openDevice('cuda:0', { memoryLimit: 74 * MiB });
    try {
      const b = buffers();
      const want = await step(b).y.readBytes();
      const graphs = Array.from({ length: 4 }, () => device.capture(() => step(b)));
      const x = limited.empty([4]);
      const own = limited.capture(() => limited.ops.fill({ x, value: 2 }));
      for (const graph of graphs) graph.replay();
      for (let i = 0; i < 10; i++) {
        const other = openDevice('cuda:0');
        expect(Array.from(await other.tensor(Float32Array.of(i)).read())).toEqual([i]);
        other.dispose();
        await sleep(50);
      }
      const large = limited.empty([9 * MiB]);
      own.replay();
      large.dispose();
      limited.empty([10 * MiB]);
      await limited.synchronize();
      for (const graph of graphs) expect(await graph.result.y.readBytes()).toEqual(want);
    } finally {
      vi.unstubAllEnvs();
      limited.dispose();
    }
  });

  it.skipIf(gpus.length < 2)('ends on its own GPU, whichever one is current', async () => {
    const second = openDevice('cuda:1');
    const x = second.tensor(random(64 * 64, 1), [64, 64], 'bf16');
    const w = second.tensor(random(64 * 64, 2), [64, 64]);
    const graph = second.capture(() => second.ops.linear({ x, w, scale: 1 }).y!);
    graph.replay();
    await second.synchronize();
    expect(device.stats().reservedBytes).toBeGreaterThan(0);
    device.info(); // makes cuda:0 the current one
    graph.dispose();
    graph.result.dispose();
    expect(await second.tensor(Float32Array.of(1)).readFloats()).toEqual(Float32Array.of(1));
    second.dispose();
  });

  it('of no ops gives a graph that replays', async () => {
    const graph = device.capture(() => undefined);
    graph.replay();
    await device.synchronize();
    graph.dispose();
  });

  it('of an op that refuses its arguments poisons the queue at the first replay', async () => {
    const other = openDevice('cuda:0');
    const flat = () => other.tensor(random(2));
    const [params, grads, exp_avg, exp_avg_sq, weight_decay] = [
      flat(),
      flat(),
      flat(),
      flat(),
      other.zeros([1]),
    ];
    const sizes = other.tensor(Int32Array.of(2));
    const graph = other.capture(() =>
      other.ops.adamw({ params, grads, exp_avg, exp_avg_sq, sizes, weight_decay, ...SCALARS, step: 0 }),
    );
    graph.replay();
    await expect(other.synchronize()).rejects.toThrow('adamw: step is 0, expected 1 or more (op replay');
    other.dispose();
  });
});
