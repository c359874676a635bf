/** Ops bound by memory: each prepares its tensors and is then queued again and again. */
import type { Device, Ops } from '#src/runtime/device.js';
import { Tensor } from '#src/runtime/tensor.js';
import { HEAD_DIM_OF_OPS, type MemoryOp, type OpCase } from '../cases.js';
import { randomIds, randomTensor } from './random.js';
import { copiesFor, stopwatch } from './stopwatch.js';

/** What one call of an op takes. */
type Prepare<Op extends MemoryOp> = (device: Device, item: OpCase, seed: number) => Parameters<Ops[Op]>[0];

const EMBEDDED_TOKENS = 32_768;
/** Length of the sequences that advantages run over. */
const SEQUENCE = 256;

const PREPARE: { readonly [Op in MemoryOp]: Prepare<Op> } = {
  copy: (device, item, seed) => ({ x: activation(device, item, seed) }),
  rmsnorm: (device, item, seed) => ({
    x: activation(device, item, seed),
    residual: activation(device, item, seed + 1),
    weight: randomTensor(device, [item.width], 'f32'),
    eps: 1e-6,
    sum: true,
  }),
  rmsnorm_backward: (device, item, seed) => ({
    dy: activation(device, item, seed),
    sum: activation(device, item, seed + 1),
    dsum: activation(device, item, seed + 2),
    weight: randomTensor(device, [item.width], 'f32'),
    rstd: device.tensor(new Float32Array(item.rows).fill(1)),
  }),
  rope: (device, item, seed) => {
    const { rows, width, dtype } = item;
    const table = () => randomTensor(device, [rows, HEAD_DIM_OF_OPS / 2], 'f32');
    return {
      x: randomTensor(device, [rows, width / HEAD_DIM_OF_OPS, HEAD_DIM_OF_OPS], dtype, { seed }),
      cos: table(),
      sin: table(),
      positions: device.tensor(Int32Array.from({ length: rows }, (_, i) => i)),
    };
  },
  swiglu: (device, item, seed) => ({
    gate: activation(device, item, seed),
    up: activation(device, item, seed + 1),
  }),
  swiglu_backward: (device, item, seed) => ({
    dy: activation(device, item, seed),
    gate: activation(device, item, seed + 1),
    up: activation(device, item, seed + 2),
  }),
  embedding: (device, item, seed) => ({
    ids: device.tensor(randomIds(item.rows, EMBEDDED_TOKENS, seed)),
    weight: randomTensor(device, [EMBEDDED_TOKENS, item.width], item.dtype, { seed }),
    dtype: item.dtype,
  }),
  embedding_backward: (device, item, seed) => ({
    dy: activation(device, item, seed),
    ids: device.tensor(randomIds(item.rows, EMBEDDED_TOKENS, seed)),
    dweight: device.zeros([EMBEDDED_TOKENS, item.width]),
  }),
  adamw: (device, { rows }, seed) => ({
    params: column(device, rows, seed),
    grads: column(device, rows, seed + 1),
    exp_avg: device.zeros([rows]),
    exp_avg_sq: device.zeros([rows]),
    sizes: device.tensor(Int32Array.of(rows)),
    weight_decay: device.tensor(Float32Array.of(0.01)),
    lr: 1e-4,
    step: 1,
    max_norm: 1,
  }),
  gae: (device, { rows }, seed) => ({
    rewards: column(device, rows, seed),
    values: column(device, rows, seed + 1),
    cu_seqlens: device.tensor(Int32Array.from({ length: rows / SEQUENCE + 1 }, (_, i) => i * SEQUENCE)),
    gamma: 0.99,
  }),
  whiten: (device, { rows }, seed) => ({
    x: column(device, rows, seed),
    mask: device.tensor(new Float32Array(rows).fill(1)),
    bessel: false,
  }),
  ppo: (device, { rows }, seed) => ({
    logprobs: column(device, rows, seed),
    old_logprobs: column(device, rows, seed + 1),
    advantages: column(device, rows, seed + 2),
    weights: column(device, rows, seed + 3),
    ref_logprobs: column(device, rows, seed + 4),
    values: column(device, rows, seed + 5),
    old_values: column(device, rows, seed + 6),
    returns: column(device, rows, seed + 7),
    kl_coef: 0.05,
    value_clip: 0.2,
    dvalues: true,
  }),
  verdict_constraint: (device, { rows }, seed) => ({
    positive: column(device, rows, seed),
    negative: column(device, rows, seed + 1),
    labels: device.tensor(randomIds(rows, 2, seed)),
  }),
  pairwise: (device, { rows }, seed) => ({
    chosen: column(device, rows, seed),
    rejected: column(device, rows, seed + 1),
  }),
  dpo: (device, { rows }, seed) => ({
    chosen: column(device, rows, seed),
    rejected: column(device, rows, seed + 1),
    ref_chosen: column(device, rows, seed + 2),
    ref_rejected: column(device, rows, seed + 3),
  }),
  sample: (device, { rows, width }, seed) => ({
    logits: randomTensor(device, [rows, width], 'f32', { bound: 8, seed }),
    keys: device.tensor(randomIds(4 * rows, 1 << 30, seed), [rows, 4]),
  }),
  finite: (device, item, seed) => ({ x: activation(device, item, seed) }),
};

export async function benchOp(device: Device, item: OpCase, seconds: number): Promise<number[]> {
  const op = device.ops[item.op] as (args: object) => object;
  const calls: object[] = [PREPARE[item.op](device, item, 1)];
  const held = tensorsOf(calls[0]).reduce(
    (sum, { size, dtype }) => sum + size * (dtype === 'bf16' ? 2 : 4),
    0,
  );
  const copies = copiesFor(Math.max(item.bytes, held));
  for (let i = 1; i < copies; i++) calls.push(PREPARE[item.op](device, item, 10 * i + 1));
  const samples = await stopwatch(device, seconds, (run) => {
    for (const made of tensorsOf(op(calls[run % calls.length] as object))) made.dispose();
  });
  for (const tensor of calls.flatMap(tensorsOf)) tensor.dispose();
  return samples;
}

const tensorsOf = (named: object = {}): Tensor[] =>
  Object.values(named).filter((value) => value instanceof Tensor);

function activation(device: Device, { rows, width, dtype }: OpCase, seed: number): Tensor {
  return randomTensor(device, [rows, width], dtype, { seed });
}

function column(device: Device, rows: number, seed: number): Tensor {
  return randomTensor(device, [rows], 'f32', { seed });
}
