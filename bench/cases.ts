/**
 * What is measured. A case is plain data: the same object goes to our trial (trial.ts) and, as JSON, to the rival's
 * (peers/trial.py).
 */
import { QWEN_0_5B } from './models.js';

export const SUITES = ['gemm', 'attention', 'head', 'step', 'runtime'] as const;
export type Suite = (typeof SUITES)[number];
export type FloatType = 'f32' | 'bf16';

interface Case {
  readonly name: string;
  readonly dtype: FloatType;
  /** Floating-point operations of one run; 0 where the rate is in tokens. */
  readonly flops: number;
}

/** y [m, n] = x [m, k] · Wᵀ, or the input's gradient dx [m, k] = dy [m, n] · W. */
export interface GemmCase extends Case {
  readonly suite: 'gemm';
  readonly op: 'linear' | 'linear_dx';
  readonly m: number;
  readonly k: number;
  readonly n: number;
}

/** Causal attention with grouped key heads over sequences of these lengths. */
export interface AttentionCase extends Case {
  readonly suite: 'attention';
  readonly direction: 'forward' | 'backward';
  readonly lengths: readonly number[];
  readonly heads: number;
  readonly kvHeads: number;
  readonly headDim: number;
}

/** Log-probabilities of one target per row under a frozen head; `both` adds the gradient of the rows. */
export interface HeadCase extends Case {
  readonly suite: 'head';
  readonly direction: 'forward' | 'both';
  readonly rows: number;
  readonly hidden: number;
  readonly vocabulary: number;
}

/** Forward, backward and AdamW of LoRA on all seven projections; every token but the first of a sequence is a target. */
export interface StepCase extends Case {
  readonly suite: 'step';
  readonly config: Readonly<Record<string, unknown>>;
  readonly lengths: readonly number[];
  readonly rank: number;
}

/** A property of the runtime that no rival has; the trial answers with named figures. */
export interface RuntimeCase {
  readonly suite: 'runtime';
  readonly name: string;
  readonly measure: 'queue' | 'event loop' | 'ragged' | 'verdicts';
  /** Steps of training, or batches of ops. */
  readonly count: number;
  readonly env: Readonly<Record<string, string>>;
}

export type RivalCase = GemmCase | AttentionCase | HeadCase | StepCase;
export type BenchCase = RivalCase | RuntimeCase;

/** Cases whose trials share a process. */
export interface Group {
  readonly title: string;
  readonly cases: readonly RivalCase[];
  /** The rival's ways of doing it; the fastest counts. See README.md. */
  readonly settings: readonly string[];
}

const DTYPES: readonly FloatType[] = ['f32', 'bf16'];
const { hidden_size: HIDDEN, intermediate_size: MLP, vocab_size: VOCABULARY } = QWEN_0_5B;
const KV = 128;

type Shape = readonly [m: number, k: number, n: number];
const CPU_SHAPES: readonly Shape[] = [
  [1024, 1024, 1024],
  [2048, 2048, 2048],
  [512, HIDDEN, HIDDEN],
  [512, HIDDEN, KV],
  [512, HIDDEN, MLP],
  [512, MLP, HIDDEN],
];

export function groupsOf(suite: Exclude<Suite, 'runtime'>, onGpu = false): readonly Group[] {
  if (onGpu) return gpuGroupsOf(suite);
  switch (suite) {
    case 'gemm':
      return DTYPES.flatMap((dtype) => [gemmGroup(dtype, 'linear'), gemmGroup(dtype, 'linear_dx')]);
    case 'attention':
      return DTYPES.flatMap((dtype) => [attentionGroup(dtype, 'forward'), attentionGroup(dtype, 'backward')]);
    case 'head':
      return DTYPES.flatMap((dtype) => [headGroup(dtype, 'forward'), headGroup(dtype, 'both')]);
    case 'step':
      return (['bf16', 'f32'] as const).map((dtype) => stepGroup(dtype));
  }
}

export function runtimeCases(): readonly RuntimeCase[] {
  const queue = { suite: 'runtime', measure: 'queue', count: 200 } as const;
  return [
    { ...queue, name: 'queue an op of ten arguments', env: {} },
    { ...queue, name: 'the same, STEPTRAIN_STACKS=1', env: { STEPTRAIN_STACKS: '1' } },
    { suite: 'runtime', name: 'event loop while training', measure: 'event loop', count: 5, env: {} },
    { suite: 'runtime', name: 'verdicts of a solution', measure: 'verdicts', count: 3, env: {} },
    { suite: 'runtime', name: '10,000 ragged steps', measure: 'ragged', count: 10_000, env: {} },
  ];
}

/** bf16 alone, at sizes that fill a GPU. */
function gpuGroupsOf(suite: Exclude<Suite, 'runtime'>): readonly Group[] {
  switch (suite) {
    case 'gemm':
      return (['linear', 'linear_dx'] as const).map((op) => gemmGroup('bf16', op, GPU_SHAPES, ['plain']));
    case 'attention':
      return [64, 128].flatMap((headDim) =>
        (['forward', 'backward'] as const).map((direction) =>
          attentionGroup('bf16', direction, headDim, 16, 16, [1024, 2048, 4096, 16_384], ['flash', 'cuDNN']),
        ),
      );
    case 'head':
      return (['forward', 'both'] as const).map((direction) => headGroup('bf16', direction, 4096));
    case 'step':
      return [
        stepGroup(
          'bf16',
          Array.from({ length: 8 }, () => 1024),
        ),
      ];
  }
}

/** Hidden and MLP sizes of the 0.5B, 1.5B and 7B shapes of Qwen2.5, at three numbers of tokens. */
const GPU_SHAPES: readonly Shape[] = [
  [8192, 8192, 8192],
  ...[512, 4096, 16_384].flatMap((tokens) =>
    (
      [
        [896, 4864],
        [1536, 8960],
        [3584, 18_944],
      ] as const
    ).flatMap(([hidden, mlp]): Shape[] => [
      [tokens, hidden, hidden],
      [tokens, hidden, mlp],
      [tokens, mlp, hidden],
    ]),
  ),
];

function gemmGroup(
  dtype: FloatType,
  op: GemmCase['op'],
  shapes: readonly Shape[] = CPU_SHAPES,
  settings: readonly string[] = ['plain', 'oneDNN packed'],
): Group {
  const cases = shapes.map(([m, k, n]): GemmCase => {
    const shape = m === k && k === n ? `${m}³` : `${m} × ${k} → ${n}`;
    return { suite: 'gemm', name: shape, dtype, flops: 2 * m * k * n, op, m, k, n };
  });
  return {
    title: `${op === 'linear' ? 'linear' : 'gradient of the input'}, ${dtype}`,
    cases,
    settings,
  };
}

function attentionGroup(
  dtype: FloatType,
  direction: AttentionCase['direction'],
  headDim = 64,
  heads = HIDDEN / headDim,
  kvHeads = KV / headDim,
  batches: readonly (number | readonly number[])[] = [[256, 256], 1024, 2048],
  settings: readonly string[] = ['enable_gqa', 'repeated keys'],
): Group {
  const cases = batches.map((batch): AttentionCase => {
    const lengths = typeof batch === 'number' ? [batch] : batch;
    const pairs = lengths.reduce((sum, length) => sum + (length * (length + 1)) / 2, 0);
    // Two products forward; five backward, the scores recomputed.
    const flops = (direction === 'forward' ? 4 : 10) * heads * headDim * pairs;
    const name = `${lengths.length} × ${lengths[0]}`;
    return {
      suite: 'attention',
      name,
      dtype,
      flops,
      direction,
      lengths,
      heads,
      kvHeads,
      headDim,
    };
  });
  return {
    title: `attention ${direction}, ${dtype}, ${heads} heads on ${kvHeads}, size ${headDim}`,
    cases,
    settings,
  };
}

function headGroup(dtype: FloatType, direction: HeadCase['direction'], rows = 512): Group {
  const flops = (direction === 'forward' ? 2 : 4) * rows * HIDDEN * VOCABULARY;
  const name = `${rows} × ${HIDDEN} → ${VOCABULARY}`;
  return {
    title: `head log-probabilities, ${direction === 'forward' ? 'forward' : 'forward and backward'}, ${dtype}`,
    cases: [{ suite: 'head', name, dtype, flops, direction, rows, hidden: HIDDEN, vocabulary: VOCABULARY }],
    settings: ['all logits', 'chunks of 128 rows'],
  };
}

function stepGroup(dtype: FloatType, lengths: readonly number[] = [256, 256]): Group {
  const name = `Qwen2.5-0.5B shape, ${lengths.length} × ${lengths[0]} tokens, r = 16`;
  return {
    title: `LoRA training step, ${dtype}`,
    cases: [{ suite: 'step', name, dtype, flops: 0, config: QWEN_0_5B, lengths, rank: 16 }],
    // f32 has one way; under bf16 the adapters may stay f32 (PEFT's default), follow, or run under autocast.
    settings: dtype === 'f32' ? ['plain'] : ['plain', 'adapters in bf16', 'autocast'],
  };
}

/** Tokens that a case processes in one run. */
export function tokensOf(item: StepCase): number {
  return item.lengths.reduce((sum, length) => sum + length, 0);
}
