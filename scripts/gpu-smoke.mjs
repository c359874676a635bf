// Runs the CUDA slice on a machine with a GPU: each op against the CPU in the same addon, capture against eager,
// poisoning, launches, then a few timings. Needs Node and the addon alone (no packages, no dist/):
//   node scripts/gpu-smoke.mjs [path/to/steptrain.node]     default build/Release/steptrain.node
// Prints one JSON object; exits with 1 where a check failed or there is no GPU.
import { createRequire } from 'node:module';
import { dirname, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';

const root = resolve(dirname(fileURLToPath(import.meta.url)), '..');
const path = resolve(process.argv[2] ?? resolve(root, 'build/Release/steptrain.node'));
const addon = createRequire(import.meta.url)(path);
addon.initialize((code, message) => Object.assign(new Error(message), { code }));

const DTYPES = ['f32', 'bf16', 'i32', 'u8'];
const TENSORS = 1;
const SCALARS = 17;
const OUTPUTS = 34;

/** The op list as this script needs it: names of tensors and scalars, and which outputs are optional. */
const ops = new Map(
  addon.signatures().map((text, id) => {
    const [head, outputs = ''] = text.split(') ->');
    const [inputs, scalars = ''] = head
      .slice(head.indexOf('(') + 1)
      .replace(/\)$/, '')
      .split(';');
    const names = (list) =>
      list
        .replace(/\[[^\]]*\]/g, '')
        .split(',')
        .map((item) => item.trim())
        .filter(Boolean)
        .map((item) => ({
          name: item.replace(/^&/, '').replace(/\??:.*/, ''),
          optional: item.includes('?:'),
        }));
    return [
      text.slice(0, text.indexOf('(')),
      { id, inputs: names(inputs), scalars: names(scalars), outputs: names(outputs) },
    ];
  }),
);

/** A device through the addon's own interface. Tensors are { handle, shape, dtype }. */
class Bare {
  constructor(name) {
    this.commands = new Float64Array(addon.commandLength);
    this.native = new addon.Device(name, 0, '', this.commands);
  }
  tensor(values, shape, dtype = 'f32') {
    const handle = this.native.allocate(DTYPES.indexOf(dtype), shape);
    this.native.upload(handle, dtype === 'bf16' ? toBf16(values) : values);
    return { handle, shape, dtype };
  }
  empty(shape, dtype = 'f32') {
    return { handle: this.native.allocate(DTYPES.indexOf(dtype), shape), shape, dtype };
  }
  op(name, tensors, scalars = {}, wanted = []) {
    const op = ops.get(name);
    const all = [...op.inputs, ...op.outputs];
    this.commands[0] = op.id;
    all.forEach(({ name: tensor, optional }, i) => {
      const output = i >= op.inputs.length;
      const allocate = output && (!optional || wanted.includes(tensor));
      this.commands[TENSORS + i] = tensors[tensor]?.handle ?? (allocate ? -1 : 0);
    });
    op.scalars.forEach(({ name: scalar }, i) => {
      this.commands[SCALARS + i] = scalars[scalar] ?? 0;
    });
    this.native.enqueue();
    const made = {};
    op.outputs.forEach(({ name: tensor }, i) => {
      const handle = this.commands[TENSORS + op.inputs.length + i];
      if (handle === 0 || tensors[tensor]) return;
      const [rank, ...rest] = this.commands.subarray(OUTPUTS + 6 * i, OUTPUTS + 6 * i + 6);
      made[tensor] = { handle, shape: rest.slice(0, rank), dtype: DTYPES[rest[4]] };
    });
    return made;
  }
  async bytes(tensor) {
    return Buffer.from(await this.native.download(tensor.handle));
  }
  async floats(tensor) {
    const buffer = await this.native.download(tensor.handle);
    return tensor.dtype === 'bf16' ? fromBf16(new Uint16Array(buffer)) : new Float32Array(buffer);
  }
}

function toBf16(values) {
  const bits = new Uint32Array(Float32Array.from(values).buffer);
  return Uint16Array.from(bits, (b) => (b + 0x7fff + ((b >>> 16) & 1)) >>> 16);
}
function fromBf16(halves) {
  return new Float32Array(Uint32Array.from(halves, (h) => h << 16).buffer);
}
/** Reproducible numbers in [-1, 1). */
function random(length, seed = 1) {
  return Float32Array.from({ length }, (_, i) => {
    let h = Math.imul(i + 1, 0x9e3779b1) ^ Math.imul(seed, 0x85ebca77);
    h = Math.imul(h ^ (h >>> 16), 0x7feb352d);
    h = Math.imul(h ^ (h >>> 15), 0x846ca68b);
    return ((h ^ (h >>> 16)) >>> 0) / 2 ** 31 - 1;
  });
}
/** Largest difference over the largest value of `b`; NaN anywhere gives NaN. */
function relative(a, b) {
  let [worst, largest] = [a.length === b.length ? 0 : Number.NaN, 1e-30];
  for (let i = 0; i < b.length; i++) {
    const difference = Math.abs(a[i] - b[i]);
    if (!(difference <= worst)) worst = difference;
    largest = Math.max(largest, Math.abs(b[i]));
  }
  return worst / largest;
}

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
  for (const n of [1, 33, 5003, 3_000_001]) {
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
  for (const [rows, size] of [
    [3, 7],
    [70, 600],
    [512, 896],
    [64, 8192],
  ]) {
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
  for (const [T, N, K, r] of [
    [1, 5, 7, 2],
    [70, 72, 136, 20],
    [200, 136, 264, 8],
    [512, 896, 896, 16],
    [333, 1001, 777, 16],
    [1600, 1544, 1480, 16],
  ]) {
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
  const total = 1_000_003;
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

function layer(device) {
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
      message.startsWith('E_RANGE adamw: sizes sum to 7, expected 6'),
      message,
    );
  });
  await check('memory stays flat', async () => {
    const x = gpu.tensor(random(4096), [64, 64]);
    for (let i = 0; i < 2000; i++) {
      const { y } = gpu.op('linear', { x, w: x }, { scale: 1 });
      gpu.native.release(y.handle);
    }
    await gpu.native.synchronize();
    const before = gpu.native.stats();
    for (let i = 0; i < 2000; i++) gpu.native.release(gpu.op('linear', { x, w: x }, { scale: 1 }).y.handle);
    await gpu.native.synchronize();
    const after = gpu.native.stats();
    record(
      'memory stays flat',
      after.liveBytes === before.liveBytes && after.reservedBytes === before.reservedBytes,
      after,
    );
  });
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

async function timings(gpu) {
  const time = async (name, run, batch, amount, unit) => {
    const s = await seconds(gpu, run, batch);
    summary.timings[name] = { milliseconds: s * 1e3, [unit]: amount / s / (unit === 'TFLOP/s' ? 1e12 : 1e9) };
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
}

if (summary.gpus?.length) {
  const gpu = new Bare('cuda:0');
  summary.device = gpu.native.info();
  await parity(gpu, new Bare('cpu'));
  await runtime(gpu);
  await check('timings', () => timings(gpu));
  summary.stats = gpu.native.stats();
} else {
  summary.failed.push('no GPU');
}
console.log(JSON.stringify(summary, undefined, 1));
process.exitCode = summary.failed.length > 0 ? 1 : 0;
