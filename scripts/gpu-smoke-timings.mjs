// Timings of the CUDA slice, for gpu-smoke.mjs: from the host, around batches of queued ops.
import { random } from './gpu-smoke-device.mjs';

/** Linear, RMSNorm and AdamW on buffers of their own: what is captured and replayed. */
export function layer(device) {
  const [T, N, K] = [256, 896, 896];
  const given = {
    x: device.tensor(random(T * K, 1), [T, K], 'bf16'),
    w: device.tensor(random(N * K, 2), [N, K], 'bf16'),
    weight: device.tensor(random(N, 3), [N]),
    params: device.tensor(random(1000, 4), [1000]),
    grads: device.tensor(random(1000, 5), [1000]),
    exp_avg: device.tensor(new Float32Array(1000), [1000]),
    exp_avg_sq: device.tensor(new Float32Array(1000), [1000]),
    sizes: device.tensor(Int32Array.of(400, 600), [2], 'i32'),
    weight_decay: device.tensor(Float32Array.of(0.1, 0), [2]),
  };
  const run = () => {
    const { x, w, weight, ...optimizer } = given;
    const { y } = device.op('linear', { x, w }, { scale: 1 });
    const normed = device.op('rmsnorm', { x: y, weight }, { eps: 1e-5 });
    device.op('adamw', optimizer, {
      lr: 1e-2,
      beta1: 0.9,
      beta2: 0.99,
      eps: 1e-8,
      step: 1,
      max_norm: 1,
      grad_scale: 1,
    });
    return normed.y;
  };
  return { given, run };
}

/** Seconds of one run, the median of `samples` batches of `batch` runs. */
async function seconds(gpu, run, batch, samples = 7) {
  const times = [];
  for (let i = -1; i < samples; i++) {
    await gpu.native.synchronize();
    const start = process.hrtime.bigint();
    for (let j = 0; j < batch; j++) run();
    await gpu.native.synchronize();
    if (i >= 0) times.push(Number(process.hrtime.bigint() - start) / 1e9 / batch);
  }
  return times.sort((a, b) => a - b)[samples >> 1];
}

/** Milliseconds and rates by name. */
export async function timings(gpu) {
  const measured = {};
  const time = async (name, run, batch, amount, unit) => {
    const s = await seconds(gpu, run, batch);
    measured[name] = { milliseconds: s * 1e3, [unit]: amount / s / (unit === 'TFLOP/s' ? 1e12 : 1e9) };
  };
  const wide = (rows, columns, dtype, seed) =>
    gpu.tensor(random(rows * columns, seed), [rows, columns], dtype);
  for (const [T, N, K] of [
    [4096, 4096, 4096],
    [512, 4864, 896],
    [4096, 4864, 896],
    [16384, 8960, 1536],
  ]) {
    const [x, w] = [wide(T, K, 'bf16', 1), wide(N, K, 'bf16', 2)];
    const y = gpu.empty([T, N], 'bf16');
    await time(
      `linear bf16 ${T}x${N}x${K}`,
      () => gpu.op('linear', { x, w, y }, { scale: 1 }),
      20,
      2 * T * N * K,
      'TFLOP/s',
    );
    const lora = { lora_a: wide(16, K, 'f32', 3), lora_b: wide(N, 16, 'f32', 4) };
    await time(
      `linear bf16 ${T}x${N}x${K} with LoRA 16`,
      () => gpu.op('linear', { x, w, y, ...lora }, { scale: 1 }),
      20,
      2 * T * N * K,
      'TFLOP/s',
    );
    for (const tensor of [x, w, y, ...Object.values(lora)]) gpu.native.release(tensor.handle);
  }
  const [a, b, c] = [wide(2048, 2048, 'f32', 1), wide(2048, 2048, 'f32', 2), gpu.empty([2048, 2048])];
  await time(
    'linear f32 2048x2048x2048',
    () => gpu.op('linear', { x: a, w: b, y: c }, { scale: 1 }),
    10,
    2 * 2048 ** 3,
    'TFLOP/s',
  );
  const [x, y, z] = [
    wide(8192, 4096, 'bf16', 1),
    gpu.empty([8192, 4096], 'bf16'),
    gpu.empty([8192, 4096], 'bf16'),
  ];
  const bytes = 8192 * 4096 * 2;
  await time('copy 64 MiB', () => gpu.op('copy', { x, y }), 20, 2 * bytes, 'GB/s');
  await time('add 64 MiB', () => gpu.op('add', { x, y: x, z }), 20, 3 * bytes, 'GB/s');
  const weight = gpu.tensor(random(4096), [4096]);
  const rstd = gpu.empty([8192]);
  await time(
    'rmsnorm 8192x4096 with residual',
    () => gpu.op('rmsnorm', { x, residual: x, weight, y, sum: z, rstd }, { eps: 1e-5 }),
    20,
    4 * bytes,
    'GB/s',
  );
  const total = 1 << 26;
  const [params, grads, exp_avg, exp_avg_sq] = [1, 2, 3, 4].map((seed) =>
    gpu.tensor(random(total, seed).map(Math.abs), [total]),
  );
  const segments = {
    sizes: gpu.tensor(Int32Array.of(total), [1], 'i32'),
    weight_decay: gpu.tensor(Float32Array.of(0.1), [1]),
    stats: gpu.empty([3]),
  };
  await time(
    'adamw 67M parameters',
    () =>
      gpu.op(
        'adamw',
        { params, grads, exp_avg, exp_avg_sq, ...segments },
        { lr: 1e-3, beta1: 0.9, beta2: 0.99, eps: 1e-8, step: 10, max_norm: 1, grad_scale: 1 },
      ),
    5,
    total * 32,
    'GB/s',
  );
  const { run } = layer(gpu);
  gpu.native.beginCapture();
  run();
  const graph = gpu.native.endCapture(true);
  await time('replay of linear, rmsnorm, adamw', () => gpu.native.replay(graph), 200, 1, 'Greplays/s');
  return measured;
}
