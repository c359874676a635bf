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

export function groupsOf(suite: Exclude<Suite, 'runtime'>): readonly Group[] {
  switch (suite) {
    case 'gemm':
      return DTYPES.flatMap((dtype) => [gemmGroup(dtype, 'linear'), gemmGroup(dtype, 'linear_dx')]);
    case 'attention':
      return DTYPES.flatMap((dtype) => [attentionGroup(dtype, 'forward'), attentionGroup(dtype, 'backward')]);
    case 'head':
      return DTYPES.flatMap((dtype) => [headGroup(dtype, 'forward'), headGroup(dtype, 'both')]);
    case 'step':
      return (['bf16', 'f32'] as const).map(stepGroup);
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

function gemmGroup(dtype: FloatType, op: GemmCase['op']): Group {
  const shapes: readonly (readonly [m: number, k: number, n: number])[] = [
    [1024, 1024, 1024],
    [2048, 2048, 2048],
    [512, HIDDEN, HIDDEN],
    [512, HIDDEN, KV],
    [512, HIDDEN, MLP],
    [512, MLP, HIDDEN],
  ];
  const cases = shapes.map(([m, k, n]): GemmCase => {
    const shape = m === k && k === n ? `${m}³` : `${m} × ${k} → ${n}`;
    return { suite: 'gemm', name: shape, dtype, flops: 2 * m * k * n, op, m, k, n };
  });
  return {
    title: `${op === 'linear' ? 'linear' : 'gradient of the input'}, ${dtype}`,
    cases,
    settings: ['plain', 'oneDNN packed'],
  };
}

function attentionGroup(dtype: FloatType, direction: AttentionCase['direction']): Group {
  const headDim = 64;
  const heads = HIDDEN / headDim;
  const cases = [[256, 256], [1024], [2048]].map((lengths): AttentionCase => {
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
      kvHeads: KV / headDim,
      headDim,
    };
  });
  return {
    title: `attention ${direction}, ${dtype}, 14 heads on 2, size 64`,
    cases,
    settings: ['enable_gqa', 'repeated keys'],
  };
}

function headGroup(dtype: FloatType, direction: HeadCase['direction']): Group {
  const rows = 512;
  const flops = (direction === 'forward' ? 2 : 4) * rows * HIDDEN * VOCABULARY;
  const name = `${rows} × ${HIDDEN} → ${VOCABULARY}`;
  return {
    title: `head log-probabilities, ${direction === 'forward' ? 'forward' : 'forward and backward'}, ${dtype}`,
    cases: [{ suite: 'head', name, dtype, flops, direction, rows, hidden: HIDDEN, vocabulary: VOCABULARY }],
    settings: ['all logits', 'chunks of 128 rows'],
  };
}

function stepGroup(dtype: FloatType): Group {
  const lengths = [256, 256];
  const name = 'Qwen2.5-0.5B shape, 2 × 256 tokens, r = 16';
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
