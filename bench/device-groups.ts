/**
 * The cases of the check of a GPU (scripts/device), by group, the most telling first; and those that tell whether a
 * successor of a kernel (cuda/runtime/choice.h) is the faster one.
 */
import {
  type AttentionCase,
  type GemmCase,
  type HeadCase,
  MEMORY_OPS,
  type MemoryOp,
  type RivalCase,
} from './cases.js';
import { attentionCase, gemmCase, generateCase, headCase, opCase, stepCase } from './counted-cases.js';
import { QWEN_0_5B, QWEN_1_5B, QWEN_7B, SMALL } from './models.js';

export interface Successor {
  /** Substrings of the paths of the test files that concern it. */
  readonly tests: readonly string[];
  readonly cases: readonly RivalCase[];
}

export interface DeviceCases {
  readonly groups: Readonly<Record<string, readonly RivalCase[]>>;
  readonly successors: Readonly<Record<string, Successor>>;
}

const RANK = 16;
const ROWS = 4096;
const MODELS = { '0.5B': QWEN_0_5B, '1.5B': QWEN_1_5B, '7B': QWEN_7B };
type Who = keyof typeof MODELS;

const gemm = (op: GemmCase['op'], m: number, k: number, n: number, rank = 0, kv = 0): GemmCase =>
  gemmCase('bf16', op, [m, k, n], rank, kv);

const times = (count: number, length: number): readonly number[] =>
  Array.from({ length: count }, () => length);

/** The name says the heads, since results are found by it. */
function attention(
  direction: AttentionCase['direction'],
  [count, length]: readonly [number, number],
  [heads, kvHeads, size]: readonly [number, number, number],
): AttentionCase {
  const item = attentionCase('bf16', direction, times(count, length), heads, kvHeads, size);
  const of = heads === kvHeads ? `${heads} heads` : `${heads} heads on ${kvHeads}`;
  return { ...item, name: `${item.name}, ${of}, D = ${size}` };
}

const head = (direction: HeadCase['direction'], who: Who): HeadCase =>
  headCase('bf16', direction, ROWS, MODELS[who].hidden_size, MODELS[who].vocab_size);

function decode(who: Who, batch: number, newTokens: number): RivalCase {
  const config = MODELS[who];
  const item = generateCase('decode', 'bf16', config, { batch, prompt: 128, newTokens });
  return { ...item, name: `${shapeName(who)}, ${item.name}` };
}

const step = (who: Who, count: number): RivalCase =>
  stepCase('bf16', shapeName(who), MODELS[who], times(count, 1024), RANK);

const shapeName = (who: Who) => `Qwen2.5-${who}`;

const prefill = (): RivalCase => {
  const item = generateCase('prefill', 'bf16', QWEN_7B, { batch: 4, prompt: 1024, newTokens: 1 });
  return { ...item, name: `${shapeName('7B')}, ${item.name}` };
};

/** [k, n] of the projections, widest first. */
const WIDE = [
  [3584, 18_944],
  [18_944, 3584],
  [3584, 3584],
] as const;
const NARROW = [
  [1536, 8960],
  [8960, 1536],
  [1536, 1536],
  [896, 4864],
  [4864, 896],
  [896, 896],
] as const;
const LORA = [
  [3584, 18_944],
  [18_944, 3584],
  [1536, 8960],
  [8960, 1536],
] as const;
/** [m, k, n] of products whose last wave is far from full in whole tiles. */
const SHARED = [
  [3072, 8960, 1536],
  [8192, 4864, 896],
  [2048, 18_944, 3584],
  [2048, 3584, 3584],
] as const;
const LENGTHS = [
  [8, 2048],
  [4, 4096],
  [1, 16_384],
] as const;
const HEADS = [
  [16, 16, 128],
  [32, 32, 64],
] as const;
const GROUPED = [28, 4, 128] as const;
const DIRECTIONS = ['forward', 'backward'] as const;

function memoryOp(op: MemoryOp): RivalCase {
  if (op === 'adamw') return opCase('f32', op, 20_000_000, 1);
  if (op === 'sample') return opCase('f32', op, 256, QWEN_0_5B.vocab_size);
  const isColumn = ['gae', 'whiten', 'ppo', 'verdict_constraint', 'pairwise', 'dpo'].includes(op);
  return isColumn ? opCase('f32', op, 1_048_576, 1) : opCase('bf16', op, 16_384, 3584);
}

const attentions = (direction: AttentionCase['direction']) => [
  ...HEADS.flatMap((heads) => LENGTHS.map((lengths) => attention(direction, lengths, heads))),
  attention(direction, [4, 2048], GROUPED),
];

/** Up to 256 rows: decoding, and verdicts of a batch. */
const fewRows = (rows: readonly number[]): readonly RivalCase[] =>
  rows.flatMap((m) => [
    gemm('linear', m, 3584, 18_944),
    gemm('linear', m, 18_944, 3584),
    gemm('linear', m, 896, 896),
    gemm('swiglu', m, 3584, 18_944),
    gemm('swiglu', m, 896, 4864),
    gemm('qkv', m, 3584, 3584, 0, 512),
    gemm('qkv', m, 896, 896, 0, 128),
  ]);

export function deviceCases(): DeviceCases {
  const products = [...WIDE, ...NARROW];
  const groups = {
    gemm: [
      gemm('linear', 8192, 8192, 8192),
      ...products.map(([k, n]) => gemm('linear', ROWS, k, n)),
      ...products.map(([k, n]) => gemm('linear_dx', ROWS, k, n)),
    ],
    rows: [
      ...[1, 16].map((m) => gemm('linear', m, 3584, 18_944)),
      ...fewRows([64, 256]),
      ...[16, 256].map((m) => gemm('linear_dx', m, 3584, 18_944)),
    ],
    lora: LORA.flatMap(([k, n]) => [0, RANK].map((rank) => gemm('both', ROWS, k, n, rank))),
    attention: DIRECTIONS.flatMap(attentions),
    head: (['forward', 'both'] as const).flatMap((way) => [head(way, '0.5B'), head(way, '7B')]),
    kernels: MEMORY_OPS.map(memoryOp),
    step: [step('0.5B', 8), step('1.5B', 8), step('7B', 4)],
    decode: [
      ...[1, 16, 64, 256].map((batch) => decode('0.5B', batch, 48)),
      ...[1, 16, 64, 256].map((batch) => decode('7B', batch, 32)),
    ],
    prefill: [prefill()],
  };
  const successors = {
    attention_backward: {
      tests: ['test/ops/attention.test', 'test/cuda/attention.test'],
      cases: attentions('backward').filter(({ headDim }) => headDim === 128),
    },
    lora_gradients: {
      tests: ['test/ops/gemm.test', 'test/cuda/gemm.test'],
      cases: groups.lora.filter((item) => 'rank' in item && item.rank > 0),
    },
    stream_k: {
      tests: ['test/ops/gemm.test', 'test/cuda/gemm.test', 'test/cuda/tiles.test'],
      cases: [
        ...SHARED.flatMap(([m, k, n]) => [gemm('linear', m, k, n), gemm('linear_dx', m, n, k)]),
        head('both', '7B'),
      ],
    },
  };
  return { groups, successors };
}

/** One small case for each that goes the same way: for an emulated GPU, which takes seconds for what a GPU does in none. */
export function tinyCases(): DeviceCases {
  const config = { ...SMALL, hidden_size: 64, intermediate_size: 128, num_attention_heads: 2 };
  const tiny = { ...config, num_key_value_heads: 1, num_hidden_layers: 1, vocab_size: 64 };
  const [product, attended] = [gemm('linear', 64, 64, 64), attention('forward', [1, 64], [2, 1, 64])];
  const generated = generateCase('decode', 'bf16', tiny, { batch: 2, prompt: 8, newTokens: 3 });
  const groups = {
    gemm: [product],
    rows: [gemm('swiglu', 33, 64, 64), gemm('qkv', 33, 64, 64, 0, 32)],
    lora: [gemm('both', 64, 64, 64, RANK)],
    attention: [attended],
    head: [headCase('bf16', 'both', 32, 64, 256)],
    kernels: [opCase('f32', 'whiten', 1024, 1)],
    step: [stepCase('bf16', 'tiny', tiny, [16, 16], RANK)],
    decode: [generated],
    prefill: [generateCase('prefill', 'bf16', tiny, { batch: 2, prompt: 16, newTokens: 1 })],
  };
  const successors = {
    attention_backward: {
      tests: ['test/ops/attention.test'],
      cases: [attention('backward', [1, 64], [2, 1, 128])],
    },
    lora_gradients: { tests: ['test/ops/gemm.test'], cases: groups.lora },
    stream_k: { tests: ['test/cuda/tiles.test'], cases: [product] },
  };
  return { groups, successors };
}
