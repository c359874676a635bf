// Runs the CUDA slice on a machine with a GPU: each op against the CPU in the same addon, capture against eager,
// poisoning, memory, then a few timings. Needs Node, this folder's gpu-smoke*.mjs and the addon alone (no packages,
// no dist/):
//   node scripts/gpu-smoke.mjs [path/to/steptrain.node]     default build/Release/steptrain.node
// Prints one JSON object; exits with 1 where a check failed or there is no GPU.
import { dirname, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { Bare, load, random } from './gpu-smoke-device.mjs';
import { layer, timings } from './gpu-smoke-timings.mjs';

const root = resolve(dirname(fileURLToPath(import.meta.url)), '..');
const path = resolve(process.argv[2] ?? resolve(root, 'build/Release/steptrain.node'));
const addon = load(path);

/** Largest difference over the largest value of `b`; NaN anywhere gives NaN. */
function relative(a, b) {
  let [worst, largest] = [a.length === b.length ? 0 : Number.NaN, 1e-30];
  for (let i = 0; i < b.length; i++) {
    worst = Math.max(worst, Math.abs(a[i] - b[i])); // NaN stays
    largest = Math.max(largest, Math.abs(b[i]));
  }
  return worst / largest;
}

/** STEPTRAIN_CHECK_TINY: small sizes alone and no timings, for an emulated GPU. */
const tiny = Boolean(process.env.STEPTRAIN_CHECK_TINY);
const sizes = (all) => (tiny ? all.slice(0, 3) : all);
const rounds = tiny ? 50 : 2000;

const summary = { addon: path, gpus: addon.cudaDevices() ?? null, checks: {}, timings: {}, failed: [] };
function record(name, holds, detail) {
  summary.checks[name] = detail;
  if (!holds) summary.failed.push(name);
}
async function check(name, body) {
  try {
    await body();
  } catch (error) {
    record(name, false, `${error.code ?? ''} ${error.message}`);
  }
}

/** Runs one op on both devices and compares what it wrote. */
async function compare(gpu, cpu, title, op, tensors, scalars, { wanted = [], written = [], bound = 0 } = {}) {
  await check(title, async () => {
    const runs = [];
    for (const device of [gpu, cpu]) {
      const given = {};
      for (const [name, [values, shape, dtype]] of Object.entries(tensors))
        given[name] = device.tensor(values, shape, dtype);
      const made = device.op(op, given, scalars, wanted);
      const read = {};
      for (const [name, tensor] of Object.entries({
        ...made,
        ...Object.fromEntries(written.map((name) => [name, given[name]])),
      })) {
        read[name] = await device.floats(tensor);
      }
      for (const tensor of [...Object.values(given), ...Object.values(made)])
        device.native.release(tensor.handle);
      runs.push(read);
    }
    const errors = {};
    for (const name of Object.keys(runs[1])) errors[name] = relative(runs[0][name], runs[1][name]);
    record(
      title,
      Object.values(errors).every((error) => error <= bound),
      errors,
    );
  });
}

async function parity(gpu, cpu) {
  for (const n of sizes([1, 33, 5003, 3_000_001])) {
    for (const dtype of ['f32', 'bf16']) {
      const [x, y] = [
        [random(n, 1), [n], dtype],
        [random(n, 2), [n], dtype],
      ];
      const title = (op) => `${op} ${dtype} ${n}`;
      await compare(gpu, cpu, title('copy'), 'copy', { x }, {});
      await compare(gpu, cpu, title('cast'), 'cast', { x }, { dtype: dtype === 'f32' ? 1 : 0 });
      await compare(gpu, cpu, title('fill'), 'fill', { x }, { value: 0.3 }, { written: ['x'] });
      await compare(gpu, cpu, title('add'), 'add', { x, y }, {});
      await compare(gpu, cpu, title('scale'), 'scale', { x }, { factor: 0.3 });
      await compare(gpu, cpu, title('axpy'), 'axpy', { y, x }, { factor: -0.7 }, { written: ['y'] });
    }
  }
  for (const [rows, size] of sizes([
    [3, 7],
    [70, 600],
    [512, 896],
    [64, 8192],
  ])) {
    for (const dtype of ['f32', 'bf16']) {
      const of = (seed) => [random(rows * size, seed), [rows, size], dtype];
      const weight = [random(size, 3), [size], dtype];
      const bound = dtype === 'bf16' ? 2 ** -8 : 2 ** -18;
      await compare(
        gpu,
        cpu,
        `rmsnorm ${dtype} ${rows}x${size}`,
        'rmsnorm',
        { x: of(1), residual: of(2), weight },
        { eps: 1e-5 },
        { wanted: ['sum'], bound },
      );
      const rstd = [random(rows, 4).map((v) => 1.5 + v), [rows]];
      await compare(
        gpu,
        cpu,
        `rmsnorm_backward ${dtype} ${rows}x${size}`,
        'rmsnorm_backward',
        { dy: of(5), sum: of(6), weight, rstd, dsum: of(7), dweight: [random(size, 8), [size]] },
        {},
        { written: ['dweight'], bound },
      );
    }
  }
  for (const [T, N, K, r] of sizes([
    [1, 5, 7, 2],
    [70, 72, 136, 20],
    [200, 136, 264, 8],
    [512, 896, 896, 16],
    [333, 1001, 777, 16],
    [1600, 1544, 1480, 16],
  ])) {
    for (const [dtype, weights] of [
      ['f32', 'f32'],
      ['bf16', 'bf16'],
      ['bf16', 'f32'],
    ]) {
      for (const dropout of [0, 0.4]) {
        const title = (op) => `${op} ${dtype}/${weights} ${T}x${N}x${K} r${r} dropout ${dropout}`;
        const x = [random(T * K, 1), [T, K], dtype];
        const w = [random(N * K, 2), [N, K], weights];
        const dy = [random(T * N, 6), [T, N], dtype];
        const lora = {
          lora_a: [random(r * K, 4), [r, K]],
          lora_b: [random(N * r, 5), [N, r]],
          row_ids: [Int32Array.from({ length: T }, (_, t) => 100 + (t >> 3)), [T], 'i32'],
          positions: [Int32Array.from({ length: T }, (_, t) => t & 7), [T], 'i32'],
        };
        const scalars = { scale: 0.75, dropout, key0: 12345, key1: 678 };
        const bound = dtype === 'bf16' ? 2 ** -6 : 2 ** -16;
        await compare(
          gpu,
          cpu,
          title('linear'),
          'linear',
          { x, w, bias: [random(N, 3), [N], weights], ...lora },
          scalars,
          { wanted: ['u'], bound },
        );
        await compare(
          gpu,
          cpu,
          title('linear_dx'),
          'linear_dx',
          { dy, w, ...lora },
          { ...scalars, accumulate: 0 },
          { wanted: ['v'], bound },
        );
        const { row_ids, positions } = lora;
        await compare(
          gpu,
          cpu,
          title('lora_grads'),
          'lora_grads',
          {
            x,
            dy,
            u: [random(T * r, 7), [T, r]],
            v: [random(T * r, 8), [T, r]],
            da: [random(r * K, 9), [r, K]],
            db: [random(N * r, 10), [N, r]],
            row_ids,
            positions,
          },
          scalars,
          { written: ['da', 'db'], bound },
        );
        if (dropout === 0)
          await compare(
            gpu,
            cpu,
            title('linear_dw'),
            'linear_dw',
            { x, dy, dw: [random(N * K, 9), [N, K]], db: [random(N, 10), [N]] },
            {},
            { written: ['dw', 'db'], bound },
          );
      }
    }
  }
  const total = tiny ? 10_003 : 1_000_003;
  const flat = (seed) => [random(total, seed), [total]];
  await compare(
    gpu,
    cpu,
    'adamw',
    'adamw',
    {
      params: flat(1),
      grads: flat(2),
      exp_avg: flat(3),
      exp_avg_sq: [random(total, 4).map(Math.abs), [total]],
      sizes: [Int32Array.of(total - 5, 0, 5), [3], 'i32'],
      weight_decay: [random(3, 5), [3]],
    },
    { lr: 1e-2, beta1: 0.9, beta2: 0.99, eps: 1e-8, step: 3, max_norm: 1, grad_scale: 0.5 },
    { written: ['params', 'exp_avg', 'exp_avg_sq'], bound: 2 ** -18 },
  );
}

async function runtime(gpu) {
  await check('capture equals eager bitwise', async () => {
    const [eager, captured] = [layer(gpu), layer(gpu)];
    gpu.native.beginCapture();
    const result = captured.run();
    const graph = gpu.native.endCapture(true);
    let holds = true;
    for (let i = 0; i < 3; i++) {
      const want = eager.run();
      gpu.native.replay(graph);
      holds &&= (await gpu.bytes(result)).equals(await gpu.bytes(want));
      holds &&= (await gpu.bytes(captured.given.params)).equals(await gpu.bytes(eager.given.params));
    }
    gpu.native.releaseGraph(graph);
    record('capture equals eager bitwise', holds, holds);
  });
  await check('a kernel reports what it finds wrong', async () => {
    const other = new Bare('cuda:0');
    const flat = (seed) => other.tensor(random(6, seed), [6]);
    other.op(
      'adamw',
      {
        params: flat(1),
        grads: flat(2),
        exp_avg: flat(3),
        exp_avg_sq: flat(4),
        sizes: other.tensor(Int32Array.of(4, 3), [2], 'i32'),
        weight_decay: other.tensor(new Float32Array(2), [2]),
      },
      { lr: 1, beta1: 0.9, beta2: 0.9, eps: 1e-8, step: 1, max_norm: 0, grad_scale: 1 },
    );
    const message = await other.native.synchronize().then(
      () => 'nothing',
      (error) => `${error.code} ${error.message}`,
    );
    other.native.dispose();
    record(
      'a kernel reports what it finds wrong',
      message.startsWith('E_RANGE adamw: sizes sum to 7, expected the 6'),
      message,
    );
  });
  await check('memory stays flat', async () => {
    const x = gpu.tensor(random(4096), [64, 64]);
    for (let i = 0; i < rounds; i++) {
      const { y } = gpu.op('linear', { x, w: x }, { scale: 1 });
      gpu.native.release(y.handle);
    }
    await gpu.native.synchronize();
    const before = gpu.native.stats();
    for (let i = 0; i < rounds; i++) gpu.native.release(gpu.op('linear', { x, w: x }, { scale: 1 }).y.handle);
    await gpu.native.synchronize();
    const after = gpu.native.stats();
    record(
      'memory stays flat',
      after.liveBytes === before.liveBytes && after.reservedBytes === before.reservedBytes,
      after,
    );
  });
}

if (summary.gpus?.length) {
  const gpu = new Bare('cuda:0');
  summary.device = gpu.native.info();
  await parity(gpu, new Bare('cpu'));
  await runtime(gpu);
  if (!tiny)
    await check('timings', async () => {
      summary.timings = await timings(gpu);
    });
  summary.stats = gpu.native.stats();
} else {
  summary.failed.push('no GPU');
}
console.log(JSON.stringify(summary, undefined, 1));
process.exitCode = summary.failed.length > 0 ? 1 : 0;
