/** Makes the cases: counts their floating-point operations and bytes from shapes. */
import {
  type AttentionCase,
  type ClassifyCase,
  type DataCase,
  type FloatType,
  type GemmCase,
  type GenerateCase,
  HEAD_DIM_OF_OPS,
  type HeadCase,
  type LinearAttentionCase,
  type MemoryOp,
  type OpCase,
  type RlCase,
  type ScoreCase,
  type StepCase,
  type TrainerCase,
} from './cases.js';

const SIZE: Record<FloatType, number> = { f32: 4, bf16: 2 };
export function gemmCase(
  dtype: FloatType,
  op: GemmCase['op'],
  [m, k, n]: readonly [m: number, k: number, n: number],
  rank = 0,
  kv = 0,
): GemmCase {
  const shape =
    m === k && k === n && kv === 0 ? `${m}³` : `${m} × ${k} → ${[n, kv, kv].filter(Boolean).join(' + ')}`;
  const products = op === 'both' ? 2 : 1;
  const columns = op === 'swiglu' ? 2 * n : n + 2 * kv;
  return {
    suite: 'gemm',
    name: rank > 0 ? `${shape}, LoRA r = ${rank}` : shape,
    dtype,
    // The pair's two products forward, four more backward.
    flops: products * 2 * m * k * columns + (rank > 0 ? (op === 'both' ? 6 : 2) * m * rank * (k + n) : 0),
    bytes: products * (m * k + k * columns + m * (n + 2 * kv)) * SIZE[dtype],
    op,
    m,
    k,
    n,
    rank,
    kv,
  };
}

export function attentionCase(
  dtype: FloatType,
  direction: AttentionCase['direction'],
  lengths: readonly number[],
  heads: number,
  kvHeads: number,
  headDim: number,
): AttentionCase {
  const tokens = sum(lengths);
  // Of q, k, v, o; backward those, their gradients, and k and v are of kvHeads heads.
  const rows = (direction === 'forward' ? 2 : 4) * heads + (direction === 'forward' ? 2 : 4) * kvHeads;
  return {
    suite: 'attention',
    name: `${lengths.length} × ${lengths[0]}`,
    dtype,
    // Two products forward; five backward, the scores recomputed.
    flops: (direction === 'forward' ? 4 : 10) * heads * headDim * visiblePairs(lengths),
    bytes: rows * tokens * headDim * SIZE[dtype],
    direction,
    lengths,
    heads,
    kvHeads,
    headDim,
  };
}

export function linearAttentionCase(
  dtype: FloatType,
  direction: LinearAttentionCase['direction'],
  lengths: readonly number[],
  heads: number,
  headDim: number,
): LinearAttentionCase {
  const tokens = sum(lengths);
  return {
    suite: 'linear-attention',
    name: `${lengths.length} × ${lengths[0]}`,
    dtype,
    // Products of a state with a vector, or of two vectors: three forward; eight backward, two of them computed again.
    flops: (direction === 'forward' ? 6 : 16) * tokens * heads * headDim ** 2,
    // Of q, k, v and o; backward those, and the gradients of all but o.
    bytes: (direction === 'forward' ? 4 : 7) * tokens * heads * headDim * SIZE[dtype],
    direction,
    lengths,
    heads,
    headDim,
  };
}

export function headCase(
  dtype: FloatType,
  direction: HeadCase['direction'],
  rows: number,
  hidden: number,
  vocabulary: number,
): HeadCase {
  const passes = direction === 'forward' ? 1 : 2;
  return {
    suite: 'head',
    name: `${rows} × ${hidden} → ${vocabulary}`,
    dtype,
    flops: passes * 2 * rows * hidden * vocabulary,
    bytes: passes * (rows + vocabulary) * hidden * SIZE[dtype],
    direction,
    rows,
    hidden,
    vocabulary,
  };
}

/** Elements moved per row of `width`, and bytes moved per row besides. */
const TRAFFIC: Record<MemoryOp, { readonly elements: number; readonly bytes: (width: number) => number }> = {
  copy: { elements: 2, bytes: () => 0 },
  rmsnorm: { elements: 4, bytes: () => 4 }, // x, residual; y, sum; rstd
  rmsnorm_backward: { elements: 4, bytes: () => 4 }, // dy, sum, dsum; dx
  rope: { elements: 2, bytes: () => 4 + 4 * HEAD_DIM_OF_OPS },
  swiglu: { elements: 3, bytes: () => 0 },
  swiglu_backward: { elements: 5, bytes: () => 0 },
  embedding: { elements: 2, bytes: () => 4 },
  embedding_backward: { elements: 1, bytes: (width) => 4 + 8 * width }, // dweight in f32, read and written
  adamw: { elements: 0, bytes: () => 32 }, // the gradient twice, both moments and the weight read and written
  gae: { elements: 0, bytes: () => 16 },
  whiten: { elements: 0, bytes: () => 12 },
  ppo: { elements: 0, bytes: () => 40 },
  verdict_constraint: { elements: 0, bytes: () => 20 },
  pairwise: { elements: 0, bytes: () => 16 },
  dpo: { elements: 0, bytes: () => 24 },
  sample: { elements: 0, bytes: (width) => 4 * width },
  finite: { elements: 1, bytes: () => 0 },
};

export function opCase(dtype: FloatType, op: MemoryOp, rows: number, width: number): OpCase {
  const { elements, bytes } = TRAFFIC[op];
  return {
    suite: 'kernels',
    name: width > 1 ? `${op}, ${rows} × ${width}` : `${op}, ${rows}`,
    dtype,
    flops: 0,
    bytes: rows * (elements * width * SIZE[dtype] + bytes(width)),
    op,
    rows,
    width,
  };
}

interface DecoderShape {
  readonly hidden_size: number;
  readonly intermediate_size: number;
  readonly num_attention_heads: number;
  readonly num_hidden_layers: number;
  readonly num_key_value_heads: number;
  readonly vocab_size: number;
  /** Where not all layers attend, with heads of a size of their own. */
  readonly head_dim?: number;
  readonly layer_types?: readonly string[];
  readonly linear_num_key_heads?: number;
  readonly linear_key_head_dim?: number;
  readonly linear_num_value_heads?: number;
  readonly linear_value_head_dim?: number;
}

export function stepCase(
  dtype: FloatType,
  who: string,
  config: DecoderShape,
  lengths: readonly number[],
  rank: number,
): StepCase {
  const { layerWeights, headWeights, attending, values, state } = weightsOf(config);
  const weights = layerWeights + headWeights;
  // Each weight works once forward and once backward, none has a gradient; 14 = 4 + 10 for attention, 22 = 6 + 16 for the delta rule.
  const flops = (4 * weights + 22 * state) * sum(lengths) + 14 * attending * values * visiblePairs(lengths);
  return {
    suite: 'step',
    name: `${who} shape, ${lengths.length} × ${lengths[0]} tokens, r = ${rank}`,
    dtype,
    flops,
    bytes: 2 * weights * SIZE[dtype],
    config: { ...config },
    lengths,
    rank,
  };
}

interface EncoderShape {
  readonly hidden_size: number;
  readonly intermediate_size: number;
  readonly num_hidden_layers: number;
  readonly position_buckets: number;
}

export function classifyCase(
  dtype: FloatType,
  who: string,
  config: EncoderShape,
  direction: ClassifyCase['direction'],
  lengths: readonly number[],
  rank: number,
): ClassifyCase {
  const { hidden_size: hidden, intermediate_size: mlp, num_hidden_layers: layers } = config;
  const [weights, buckets] = [4 * hidden ** 2 + 2 * hidden * mlp, 2 * config.position_buckets];
  // Both directions, unlike visiblePairs; of the buckets only those that a sequence has.
  const pairs = sum(lengths.map((length) => length ** 2));
  const bucketed = sum(lengths.map((length) => length * Math.min(2 * length - 1, buckets)));
  const products = 2 * (weights * sum(lengths) + 2 * hidden ** 2 * buckets);
  const attention = 4 * hidden * (pairs + bucketed);
  const flops = layers * (direction === 'forward' ? products + attention : 2 * products + 3.5 * attention);
  return {
    suite: 'classify',
    name: `${who} shape, ${direction}, ${lengths.length} × ${lengths[0]} tokens${direction === 'step' ? `, r = ${rank}` : ''}`,
    dtype,
    flops,
    bytes: (direction === 'forward' ? 1 : 2) * layers * weights * SIZE[dtype],
    direction,
    config: { ...config },
    lengths,
    rank,
  };
}

export function scoreCase(
  dtype: FloatType,
  who: string,
  config: DecoderShape,
  solutions: Pick<ScoreCase, 'lengths' | 'problem' | 'ofOne' | 'words'>,
): ScoreCase {
  const { lengths, problem, ofOne, words } = solutions;
  const { layerWeights, attending, values } = weightsOf(config);
  // The problem of several solutions must be read once.
  const again = ofOne ? lengths.length - 1 : 0;
  const tokens = sum(lengths) - again * problem;
  const pairs = visiblePairs(lengths) - again * visiblePairs([problem]);
  const what = ofOne ? 'solutions of one problem' : words ? 'solutions by verdict words' : 'solutions';
  return {
    suite: 'score',
    name: `${who} shape, ${lengths.length} ${what}, ${sum(lengths)} tokens`,
    dtype,
    flops: 2 * layerWeights * tokens + 4 * attending * values * pairs,
    bytes: layerWeights * SIZE[dtype],
    config: { ...config },
    ...solutions,
  };
}

export function dataCase(file: string, tokenizer: string, rows: number): DataCase {
  return {
    ...{ suite: 'data', name: `${rows.toLocaleString('en')} rows`, dtype: 'f32', flops: 0, bytes: 0 },
    ...{ file, tokenizer, rows },
  };
}

export function generateCase(
  suite: GenerateCase['suite'],
  dtype: FloatType,
  config: DecoderShape,
  {
    batch,
    prompt,
    newTokens,
    rank = 0,
  }: Pick<GenerateCase, 'batch' | 'prompt' | 'newTokens'> & { rank?: number },
): GenerateCase {
  const { layerWeights, headWeights, kv, attending, values, state } = weightsOf(config);
  // A step's queries see on average the prompt and half of the new tokens.
  const context = prompt + newTokens / 2;
  const tokens = suite === 'decode' ? batch : batch * prompt;
  const pairs = suite === 'decode' ? batch * context : batch * visiblePairs([prompt]);
  const read = suite === 'decode' ? batch * context : 0;
  return {
    suite,
    name: `${batch} × ${prompt} tokens${rank > 0 ? `, adapter r = ${rank}` : ''}`,
    dtype,
    // The head multiplies one row of each sequence. The adapter is not counted: it is what the case asks about.
    flops:
      2 * (layerWeights * tokens + headWeights * batch) + 4 * attending * values * pairs + 6 * state * tokens,
    // A state is read and written by each forward, in f32.
    bytes: (layerWeights + headWeights + 2 * attending * kv * read) * SIZE[dtype] + 8 * state * batch,
    config: { ...config },
    batch,
    prompt,
    newTokens,
    rank,
  };
}

/**
 * Multiplications of each weight and token: of a forward, and of what backward adds where weights are frozen. What is scored is the
 * reference; GRPO's update scores the policy itself.
 */
const RL_FLOPS = { rollout: 2, score: 2, update: 4 };

/** Tokens of the sequences of a step: a prompt is computed once for all of its solutions, or with each. */
export function rlTokens({
  prompts,
  generations,
  prompt,
  newTokens,
  part,
}: Pick<RlCase, 'prompts' | 'generations' | 'prompt' | 'newTokens' | 'part'>): number {
  return prompts * ((part === 'update apart' ? generations : 1) * prompt + generations * newTokens);
}

export function rlCase(
  dtype: FloatType,
  config: DecoderShape,
  sizes: Pick<RlCase, 'prompts' | 'generations' | 'prompt' | 'newTokens' | 'rank'>,
  part: RlCase['part'],
): RlCase {
  const { prompts, generations, prompt, newTokens } = sizes;
  const { layerWeights, headWeights } = weightsOf(config);
  // The head reads the solutions alone.
  const tokens = rlTokens({ ...sizes, part });
  const solutions = prompts * generations * newTokens;
  const { rollout, score, update } = RL_FLOPS;
  const times =
    part === 'all'
      ? rollout + score + update
      : part === 'rollout' || part === 'score'
        ? RL_FLOPS[part]
        : update;
  const models = part === 'update with critic' ? 2 : 1;
  const samples = part === 'all' || part === 'rollout';
  return {
    suite: 'rl',
    name: `${prompts} × ${prompt} tokens, ${generations} solutions of ${newTokens}${part === 'all' ? '' : `: ${part}`}`,
    dtype,
    flops: times * (models * layerWeights * tokens + headWeights * solutions),
    bytes: (layerWeights + headWeights) * SIZE[dtype] * (samples ? newTokens : 1),
    config: { ...config },
    ...sizes,
    part,
  };
}

/** Multiplications of each weight and token: a policy's forward and what backward adds, a forward of the reference. */
const TRAINER_FLOPS = { policy: 4, reference: 2 };

export function trainerCase(
  dtype: FloatType,
  config: DecoderShape,
  method: TrainerCase['method'],
  sizes: Pick<TrainerCase, 'answers' | 'prompt' | 'answer' | 'rank'>,
): TrainerCase {
  const { answers, prompt, answer } = sizes;
  const { layerWeights, headWeights } = weightsOf(config);
  const { policy, reference } = TRAINER_FLOPS;
  // A pair needs its prompt once; KTO's reference point is a forward of policy and reference on mismatched answers.
  const prompts = method === 'dpo' ? answers / 2 : answers;
  const times = { sft: policy, dpo: policy + reference, kto: policy + 3 * reference, prm: policy }[method];
  // A head of two classes at the ends of steps is next to nothing.
  const head = method === 'prm' ? 0 : headWeights;
  return {
    suite: 'trainer',
    name: `${answers} × ${prompt} + ${answer} tokens, r = ${sizes.rank}`,
    dtype,
    flops: times * (layerWeights * (prompts * prompt + answers * answer) + head * answers * answer),
    bytes: 2 * (layerWeights + head) * SIZE[dtype],
    method,
    config: { ...config },
    ...sizes,
  };
}

/** Elements of the weights that products read, and of the keys of one token in one layer. */
function weightsOf(config: DecoderShape) {
  const { hidden_size: hidden, intermediate_size: mlp, num_hidden_layers: layers } = config;
  const size = config.head_dim ?? hidden / config.num_attention_heads;
  const [values, kv] = [config.num_attention_heads * size, config.num_key_value_heads * size];
  const attending = config.layer_types?.filter((type) => type === 'full_attention').length ?? layers;
  const recurrent = layers - attending;
  const { linear_num_key_heads: G = 0, linear_key_head_dim: K = 0 } = config;
  const { linear_num_value_heads: H = 0, linear_value_head_dim: V = 0 } = config;
  // Heads that are gated have a q projection twice as wide.
  const attention = hidden * ((recurrent > 0 ? 3 : 2) * values + 2 * kv);
  const linear = hidden * (2 * G * K + 3 * H * V + 2 * H);
  return {
    layerWeights: attending * attention + recurrent * linear + layers * 3 * hidden * mlp,
    headWeights: hidden * config.vocab_size,
    kv,
    attending,
    values,
    /** Elements of the states of all layers. */
    state: recurrent * H * K * V,
  };
}

/** Tokens that a case processes in one run. */
export function tokensOf(item: StepCase | GenerateCase | TrainerCase): number {
  if (item.suite === 'trainer') return item.answers * (item.prompt + item.answer);
  if (item.suite === 'step') return sum(item.lengths);
  return item.suite === 'decode' ? item.batch : item.batch * item.prompt;
}

/** Pairs of a query and a key visible to it under the causal mask. */
function visiblePairs(lengths: readonly number[]): number {
  return sum(lengths.map((length) => (length * (length + 1)) / 2));
}

function sum(values: readonly number[]): number {
  return values.reduce((total, value) => total + value, 0);
}
