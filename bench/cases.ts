/**
 * What is measured. A case is plain data: the same object goes to our trial (trial.ts) and,
 * as JSON, to the rival's (peers/trial.py).
 */
export const SUITES = [
  'gemm',
  'lora',
  'attention',
  'linear-attention',
  'head',
  'kernels',
  'step',
  'classify',
  'score',
  'prefill',
  'decode',
  'rl',
  'trainer',
  'episodes',
  'data',
  'contention',
  'runtime',
  'generation',
  'quantized',
  'experts',
  'cluster',
] as const;
export type Suite = (typeof SUITES)[number];
/** Suites of metrics that no rival has. */
export type MetricSuite = 'runtime' | 'generation' | 'quantized' | 'experts' | 'cluster';
export type FloatType = 'f32' | 'bf16';

interface Case {
  readonly name: string;
  readonly dtype: FloatType;
  /** Floating-point operations of one run. */
  readonly flops: number;
  /** Bytes that one run must at least read and write. */
  readonly bytes: number;
}

/**
 * y [m, n] = x [m, k] · Wᵀ, its input's gradient dx [m, k] = dy [m, n] · W, or both with the gradients of a LoRA pair
 * where there is one. `swiglu`: y = silu(x · W_gateᵀ) · (x · W_upᵀ); `qkv`: three products of one x, of which keys and
 * values have `kv` columns each.
 */
export interface GemmCase extends Case {
  readonly suite: 'gemm';
  readonly op: 'linear' | 'linear_dx' | 'both' | 'swiglu' | 'qkv';
  readonly m: number;
  readonly k: number;
  readonly n: number;
  /** Rank of the LoRA pair on top of the frozen weight; 0: none. */
  readonly rank: number;
  readonly kv: number;
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

/** The gated delta rule over sequences of these lengths, with as many key heads as value heads. */
export interface LinearAttentionCase extends Case {
  readonly suite: 'linear-attention';
  readonly direction: 'forward' | 'backward';
  readonly lengths: readonly number[];
  readonly heads: number;
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

/** Ops bound by memory bandwidth. */
export const MEMORY_OPS = [
  'copy',
  'rmsnorm',
  'rmsnorm_backward',
  'rope',
  'swiglu',
  'swiglu_backward',
  'embedding',
  'embedding_backward',
  'adamw',
  'gae',
  'whiten',
  'ppo',
  'verdict_constraint',
  'pairwise',
  'dpo',
  'sample',
  'finite',
] as const;
export type MemoryOp = (typeof MEMORY_OPS)[number];

/** One of them on [rows, width]; objectives, advantages and the optimizer on rows alone. */
export interface OpCase extends Case {
  readonly suite: 'kernels';
  readonly op: MemoryOp;
  readonly rows: number;
  readonly width: number;
}

/** Forward, backward and AdamW of LoRA on all seven projections; every token but the first of a sequence is a target. */
export interface StepCase extends Case {
  readonly suite: 'step';
  readonly config: Readonly<Record<string, unknown>>;
  readonly lengths: readonly number[];
  readonly rank: number;
}

/**
 * A token classifier with DeBERTa's attention: the forward to its logits, or a training step of LoRA on the linear layers of
 * its blocks with a head that is trained whole; every token has a label.
 */
export interface ClassifyCase extends Case {
  readonly suite: 'classify';
  readonly direction: 'forward' | 'step';
  readonly config: Readonly<Record<string, unknown>>;
  readonly lengths: readonly number[];
  readonly rank: number;
}

/** Scores of the steps of solutions by a token classifier with two classes, whose trunk is a decoder. */
export interface ScoreCase extends Case {
  readonly suite: 'score';
  readonly config: Readonly<Record<string, unknown>>;
  /** Tokens of each solution with its problem. */
  readonly lengths: readonly number[];
  /** Tokens of a problem. */
  readonly problem: number;
  /** Whether all are solutions of one problem. */
  readonly ofOne: boolean;
  /** Ids of two verdict words whose logits are read after each step; without them a head of two classes is read. */
  readonly words?: readonly [number, number];
}

/** Greedy generation after prompts of one length: the forward up to the first tokens, or one step of all rows after it. */
export interface GenerateCase extends Case {
  readonly suite: 'prefill' | 'decode';
  readonly config: Readonly<Record<string, unknown>>;
  /** Prompts that run together, all different. */
  readonly batch: number;
  /** Tokens of each. */
  readonly prompt: number;
  /** Tokens that follow each. */
  readonly newTokens: number;
  /** Rank of an adapter on all seven projections; 0: none. */
  readonly rank: number;
}

/**
 * A step of GRPO with LoRA on all seven projections, or a part of it; of no solution is the end sampled. `update with critic` is
 * PPO's, with a critic of its own adapter.
 */
export interface RlCase extends Case {
  readonly suite: 'rl';
  readonly config: Readonly<Record<string, unknown>>;
  /** Prompts of a step, and the solutions of each. */
  readonly prompts: number;
  readonly generations: number;
  /** Tokens of a prompt and of a solution. */
  readonly prompt: number;
  readonly newTokens: number;
  readonly rank: number;
  readonly part: 'all' | 'rollout' | 'score' | 'update' | 'update apart' | 'update with critic';
}

/** A step on whole answers with LoRA on all seven projections, the reference's pass over them included. */
export interface TrainerCase extends Case {
  readonly suite: 'trainer';
  readonly method: 'sft' | 'dpo' | 'kto' | 'prm';
  readonly config: Readonly<Record<string, unknown>>;
  /** Answers of a step, two of them a pair in DPO; tokens of a prompt and of an answer. */
  readonly answers: number;
  readonly prompt: number;
  readonly answer: number;
  readonly rank: number;
}

/** Episodes of an agent with an exact calculator; a run is 1,000 drawn tokens. */
export interface EpisodeCase extends Case {
  readonly suite: 'episodes';
  /** The agent's directory. */
  readonly model: string;
  /** JSON lines with `problem` and `answer`, and the episodes of each. */
  readonly file: string;
  readonly generations: number;
  /** Episodes that are sampled together. */
  readonly rows: number;
  /** Milliseconds that the calculator takes. */
  readonly latency: number;
  /** Tokens of a turn, and of an episode, at most. */
  readonly newTokens: number;
  readonly maxLength: number;
}

/** Rows of a file, read, tokenised and stored. */
export interface DataCase extends Case {
  readonly suite: 'data';
  /** JSON lines with `question` and `steps`, over and over, each time with another number behind the question. */
  readonly file: string;
  /** A directory with `tokenizer.json`. */
  readonly tokenizer: string;
  readonly rows: number;
}

/** A property of the runtime or of generation that no rival has; the trial answers with named metrics. */
export interface RuntimeCase {
  readonly suite: MetricSuite;
  readonly name: string;
  readonly measure:
    | 'queue'
    | 'event loop'
    | 'ragged'
    | 'verdicts'
    | 'verdicts of 20 steps'
    | 'long sequences'
    | 'small model'
    | 'shared attention'
    | 'shared prompt'
    | 'shared prompt with states'
    | 'ragged requests'
    | 'quantized'
    | 'quantized file'
    | 'experts'
    | 'cluster';
  /** Steps of training, batches of ops, new tokens or requests. */
  readonly count: number;
  readonly env: Readonly<Record<string, string>>;
}

export type RivalCase =
  | GemmCase
  | AttentionCase
  | LinearAttentionCase
  | HeadCase
  | OpCase
  | StepCase
  | ClassifyCase
  | ScoreCase
  | GenerateCase
  | RlCase
  | TrainerCase
  | EpisodeCase
  | DataCase;
export type BenchCase = RivalCase | RuntimeCase;

/** Cases whose trials share a process. */
export interface Group {
  readonly title: string;
  readonly cases: readonly RivalCase[];
  /** What the device can do at best, where it is measured again in every trial of the group. */
  readonly limits?: readonly RivalCase[];
  /** The rival's ways of doing it; the fastest counts. See README.md. */
  readonly settings: readonly string[];
}

export const HEAD_DIM_OF_OPS = 64;
