/** Ops bound by memory: each prepares its tensors and is then queued again and again. */
import type { Device } from '#src/runtime/device.js';
import type { Tensor } from '#src/runtime/tensor.js';
import { HEAD_DIM_OF_OPS, type MemoryOp, type OpCase } from '../cases.js';
import { randomIds, randomTensor } from './random.js';
import { copiesFor, stopwatch } from './stopwatch.js';

/** Inputs and scalars of one call, by the names of the op's signature. */
interface Call {
  readonly tensors: Readonly<Record<string, Tensor>>;
  readonly scalars?: Readonly<Record<string, number>>;
  readonly wanted?: readonly string[];
}
type Prepare = (device: Device, item: OpCase, seed: number) => Call;

const EMBEDDED_TOKENS = 32_768;
/** Length of the sequences that advantages run over. */
const SEQUENCE = 256;

const PREPARE: Record<MemoryOp, Prepare> = {
  copy: (device, item, seed) => ({ tensors: { x: activation(device, item, seed) } }),
  rmsnorm: (device, item, seed) => ({
    tensors: {
      x: activation(device, item, seed),
      residual: activation(device, item, seed + 1),
      weight: randomTensor(device, [item.width], 'f32'),
    },
    scalars: { eps: 1e-6 },
    wanted: ['sum'],
  }),
  rmsnorm_backward: (device, item, seed) => ({
    tensors: {
      dy: activation(device, item, seed),
      sum: activation(device, item, seed + 1),
      dsum: activation(device, item, seed + 2),
      weight: randomTensor(device, [item.width], 'f32'),
      rstd: device.tensor(new Float32Array(item.rows).fill(1)),
    },
  }),
  rope: (device, item, seed) => {
    const { rows, width, dtype } = item;
    const table = () => randomTensor(device, [rows, HEAD_DIM_OF_OPS / 2], 'f32');
    return {
      tensors: {
        x: randomTensor(device, [rows, width / HEAD_DIM_OF_OPS, HEAD_DIM_OF_OPS], dtype, { seed }),
        cos: table(),
        sin: table(),
        positions: device.tensor(Int32Array.from({ length: rows }, (_, i) => i)),
      },
    };
  },
  swiglu: (device, item, seed) => ({
    tensors: { gate: activation(device, item, seed), up: activation(device, item, seed + 1) },
  }),
  swiglu_backward: (device, item, seed) => ({
    tensors: {
      dy: activation(device, item, seed),
      gate: activation(device, item, seed + 1),
      up: activation(device, item, seed + 2),
    },
  }),
  embedding: (device, item, seed) => ({
    tensors: {
      ids: device.tensor(randomIds(item.rows, EMBEDDED_TOKENS, seed)),
      weight: randomTensor(device, [EMBEDDED_TOKENS, item.width], item.dtype, { seed }),
    },
    scalars: { dtype: item.dtype === 'bf16' ? 1 : 0 },
  }),
  embedding_backward: (device, item, seed) => ({
    tensors: {
      dy: activation(device, item, seed),
      ids: device.tensor(randomIds(item.rows, EMBEDDED_TOKENS, seed)),
      dweight: device.zeros([EMBEDDED_TOKENS, item.width]),
    },
  }),
  adamw: (device, { rows }, seed) => ({
    tensors: {
      params: column(device, rows, seed),
      grads: column(device, rows, seed + 1),
      exp_avg: device.zeros([rows]),
      exp_avg_sq: device.zeros([rows]),
      sizes: device.tensor(Int32Array.of(rows)),
      weight_decay: device.tensor(Float32Array.of(0.01)),
    },
    scalars: { lr: 1e-4, beta1: 0.9, beta2: 0.999, eps: 1e-8, step: 1, max_norm: 1, grad_scale: 1 },
  }),
  gae: (device, { rows }, seed) => ({
    tensors: {
      rewards: column(device, rows, seed),
      values: column(device, rows, seed + 1),
      cu_seqlens: device.tensor(Int32Array.from({ length: rows / SEQUENCE + 1 }, (_, i) => i * SEQUENCE)),
    },
    scalars: { gamma: 0.99, lam: 0.95 },
  }),
  whiten: (device, { rows }, seed) => ({
    tensors: { x: column(device, rows, seed), mask: device.tensor(new Float32Array(rows).fill(1)) },
    scalars: { shift_mean: 1, eps: 1e-8 },
  }),
  ppo: (device, { rows }, seed) => ({
    tensors: columns(
      device,
      rows,
      seed,
      ['logprobs', 'old_logprobs', 'advantages', 'weights', 'ref_logprobs'],
      ['values', 'old_values', 'returns'],
    ),
    scalars: { clip_low: 0.2, clip_high: 0.2, kl_coef: 0.05, kl: 3, vf_coef: 0.1, value_clip: 0.2 },
    wanted: ['dvalues'],
  }),
  verdict_constraint: (device, { rows }, seed) => ({
    tensors: {
      positive: column(device, rows, seed),
      negative: column(device, rows, seed + 1),
      labels: device.tensor(randomIds(rows, 2, seed)),
    },
  }),
  pairwise: (device, { rows }, seed) => ({ tensors: columns(device, rows, seed, ['chosen', 'rejected']) }),
  dpo: (device, { rows }, seed) => ({
    tensors: columns(device, rows, seed, ['chosen', 'rejected', 'ref_chosen', 'ref_rejected']),
    scalars: { beta: 0.1 },
  }),
  sample: (device, { rows, width }, seed) => ({
    tensors: {
      logits: randomTensor(device, [rows, width], 'f32', { bound: 8, seed }),
      keys: device.tensor(randomIds(4 * rows, 1 << 30, seed), [rows, 4]),
    },
    scalars: { temperature: 1, top_k: 0, top_p: 1, min_p: 0 },
  }),
};

export async function benchOp(device: Device, item: OpCase, seconds: number): Promise<number[]> {
  const signature = device.signature(item.op);
  const calls: Call[] = [PREPARE[item.op](device, item, 1)];
  const held = Object.values((calls[0] as Call).tensors).reduce(
    (sum, { shape, dtype }) => sum + shape.reduce((n, extent) => n * extent, dtype === 'bf16' ? 2 : 4),
    0,
  );
  const copies = copiesFor(Math.max(item.bytes, held));
  for (let i = 1; i < copies; i++) calls.push(PREPARE[item.op](device, item, 10 * i + 1));
  const samples = await stopwatch(device, seconds, (run) => {
    const { tensors, scalars, wanted } = calls[run % calls.length] as Call;
    for (const made of Object.values(device.op(signature.name, tensors, scalars, wanted))) made.dispose();
  });
  for (const { tensors } of calls) for (const tensor of Object.values(tensors)) tensor.dispose();
  return samples;
}

function activation(device: Device, { rows, width, dtype }: OpCase, seed: number): Tensor {
  return randomTensor(device, [rows, width], dtype, { seed });
}

function column(device: Device, rows: number, seed: number): Tensor {
  return randomTensor(device, [rows], 'f32', { seed });
}

function columns(device: Device, rows: number, seed: number, ...names: readonly (readonly string[])[]) {
  return Object.fromEntries(names.flat().map((name, i) => [name, column(device, rows, seed + i)]));
}
