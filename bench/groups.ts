/** The cases of each suite: at the sizes of Qwen2.5-0.5B on a CPU, at sizes that fill a GPU on one. */
import {
  type AttentionCase,
  type ClassifyCase,
  type FloatType,
  type GemmCase,
  type Group,
  type HeadCase,
  MEMORY_OPS,
  type MemoryOp,
  type MetricSuite,
  type RuntimeCase,
  type Suite,
} from './cases.js';
import {
  attentionCase,
  classifyCase,
  gemmCase,
  headCase,
  linearAttentionCase,
  opCase,
  stepCase,
} from './counted-cases.js';
import { dataGroups } from './data-groups.js';
import { episodeGroups } from './episode-groups.js';
import { generateGroups, generationCases } from './generate-groups.js';
import { DEBERTA_V3_BASE, DEBERTA_V3_XSMALL, QWEN_0_5B, QWEN_1_5B, QWEN3_5_0_8B } from './models.js';
import { rlGroups } from './rl-groups.js';
import { scoreGroups } from './score-groups.js';
import { trainerGroups } from './trainer-groups.js';

export type RivalSuite = Exclude<Suite, MetricSuite | 'contention'>;
type Shape = readonly [m: number, k: number, n: number];

const DTYPES: readonly FloatType[] = ['f32', 'bf16'];
const { hidden_size: HIDDEN, intermediate_size: MLP, vocab_size: VOCABULARY } = QWEN_0_5B;
const KV = 128;
const RANK = 16;

export function groupsOf(suite: RivalSuite, onGpu: boolean): readonly Group[] {
  return onGpu ? gpuGroups(suite) : cpuGroups(suite);
}

/** What the device can do at best: the largest plain product, a copy and a read beyond the caches, by either side. */
export function limitGroups(onGpu: boolean): readonly Group[] {
  const size = onGpu ? 8192 : 2048;
  const settings = ['plain'];
  return [
    ...(onGpu ? (['bf16'] as const) : DTYPES).map((dtype) => ({
      title: `limit of products, ${dtype}`,
      cases: [gemmCase(dtype, 'linear', [size, size, size])],
      settings,
    })),
    {
      title: 'limit of memory',
      cases: (['copy', 'finite'] as const).map((op) => opCase('f32', op, onGpu ? 32_768 : 8192, 4096)),
      settings,
    },
  ];
}

/** Cases of metrics, without a rival. */
export function metricCases(suite: MetricSuite): readonly RuntimeCase[] {
  if (suite === 'generation') return generationCases();
  if (suite === 'quantized')
    return [
      ...(['Qwen2.5-0.5B', 'Qwen2.5-1.5B'] as const).map((name) => ({
        ...{ suite, name, measure: 'quantized' as const, count: 5, env: {} },
      })),
      ...(process.env.STEPTRAIN_BENCH_GGUF
        ? [{ suite, name: 'GGUF file', measure: 'quantized file' as const, count: 7, env: {} }]
        : []),
    ];
  if (suite === 'experts')
    return [{ suite, name: 'rows of 128 experts', measure: 'experts', count: 9, env: {} }];
  if (suite === 'cluster')
    return [{ suite, name: 'LoRA step, 2 × 256 tokens', measure: 'cluster', count: 5, env: {} }];
  const queue = { suite: 'runtime', measure: 'queue', count: 200 } as const;
  return [
    { ...queue, name: 'queue an op of ten arguments', env: {} },
    { ...queue, name: 'the same, STEPTRAIN_STACKS=1', env: { STEPTRAIN_STACKS: '1' } },
    { suite: 'runtime', name: 'event loop while training', measure: 'event loop', count: 5, env: {} },
    { suite: 'runtime', name: 'verdicts of a solution', measure: 'verdicts', count: 3, env: {} },
    {
      ...{ suite: 'runtime', name: 'verdicts of 20 steps, Qwen3.5-0.8B', count: 1, env: {} },
      measure: 'verdicts of 20 steps',
    },
    { suite: 'runtime', name: 'long sequences', measure: 'long sequences', count: 1, env: {} },
    { suite: 'runtime', name: '10,000 ragged steps', measure: 'ragged', count: 10_000, env: {} },
  ];
}

const CPU_SHAPES: readonly Shape[] = [
  [1024, 1024, 1024],
  [2048, 2048, 2048],
  [512, HIDDEN, HIDDEN],
  [512, HIDDEN, KV],
  [512, HIDDEN, MLP],
  [512, MLP, HIDDEN],
];

/** The delta rule at the sizes of Qwen3.5-0.8B. */
const linearAttentionGroups = (dtype: FloatType): readonly Group[] =>
  DIRECTIONS.map((direction) => ({
    title: `gated delta rule ${direction}, ${dtype}, 16 heads, size 128`,
    cases: [[256, 256], [1024], [2048]].map((lengths) =>
      linearAttentionCase(dtype, direction, lengths, 16, 128),
    ),
    settings: ['chunks of 64'],
  }));

function cpuGroups(suite: RivalSuite): readonly Group[] {
  switch (suite) {
    case 'gemm':
      return DTYPES.flatMap((dtype) => [
        gemmGroup(dtype, 'linear', CPU_SHAPES, ['plain', 'oneDNN packed']),
        gemmGroup(dtype, 'linear_dx', CPU_SHAPES, ['plain', 'oneDNN packed']),
      ]);
    case 'lora':
      return DTYPES.map((dtype) => loraGroup(dtype, CPU_SHAPES.slice(2)));
    case 'attention':
      return DTYPES.flatMap((dtype) =>
        DIRECTIONS.map((direction) => ({
          title: `attention ${direction}, ${dtype}, 14 heads on 2, size 64`,
          cases: [[256, 256], [1024], [2048]].map((lengths) =>
            attentionCase(dtype, direction, lengths, 14, 2, 64),
          ),
          settings: ['enable_gqa', 'repeated keys'],
        })),
      );
    case 'linear-attention':
      return DTYPES.flatMap((dtype) => linearAttentionGroups(dtype));
    case 'head':
      return DTYPES.flatMap((dtype) => headGroups(dtype, 512));
    case 'kernels':
      return DTYPES.map((dtype) => opsGroup(dtype, 512, HIDDEN, MLP));
    case 'step':
      return [
        ...(['bf16', 'f32'] as const).map((dtype) =>
          // f32 has one way; under bf16 the adapters may stay f32 (PEFT's default), follow, or run under autocast.
          stepGroup(dtype, [256, 256], dtype === 'f32' ? ['plain'] : STEP_SETTINGS),
        ),
        ...[[256, 256], [2048]].map((lengths) => stepGroup('bf16', lengths, STEP_SETTINGS, 'Qwen3.5-0.8B')),
      ];
    case 'classify':
      return DTYPES.map((dtype) => classifyGroup(dtype, 'deberta-v3-xsmall', [256, 256]));
    case 'score':
      return scoreGroups();
    case 'prefill':
    case 'decode':
      return generateGroups(suite);
    case 'rl':
      return rlGroups();
    case 'trainer':
      return trainerGroups();
    case 'episodes':
      return episodeGroups();
    case 'data':
      return dataGroups();
  }
}

/** Hidden and MLP sizes of the 0.5B, 1.5B and 7B shapes of Qwen2.5, at three numbers of tokens. */
const GPU_PROJECTIONS: readonly Shape[] = [512, 4096, 16_384].flatMap((tokens) =>
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
);
/** As FlashAttention's authors measure: 16k tokens, heads · size = 2048. */
const GPU_LENGTHS = [16, 8, 5, 4, 1].map((count) =>
  Array.from({ length: count }, () => (count === 5 ? 3072 : 16_384 / count)),
);

/** bf16 alone. */
function gpuGroups(suite: RivalSuite): readonly Group[] {
  switch (suite) {
    case 'gemm':
      return [
        gemmGroup('bf16', 'linear', [[8192, 8192, 8192], ...GPU_PROJECTIONS], ['plain']),
        gemmGroup('bf16', 'linear_dx', GPU_PROJECTIONS, ['plain']),
      ];
    case 'lora':
      return [loraGroup('bf16', GPU_PROJECTIONS)];
    case 'attention':
      return [64, 128].flatMap((headDim) =>
        DIRECTIONS.map((direction) => ({
          title: `attention ${direction}, bf16, ${2048 / headDim} heads, size ${headDim}`,
          cases: GPU_LENGTHS.map((lengths) =>
            attentionCase('bf16', direction, lengths, 2048 / headDim, 2048 / headDim, headDim),
          ),
          settings: ['flash', 'cuDNN'],
        })),
      );
    case 'linear-attention':
      return linearAttentionGroups('bf16');
    case 'head':
      return headGroups('bf16', 4096);
    case 'kernels':
      return [opsGroup('bf16', 8192, 1536, 8960)];
    case 'step':
      return [
        stepGroup(
          'bf16',
          Array.from({ length: 8 }, () => 1024),
          STEP_SETTINGS,
        ),
        stepGroup(
          'bf16',
          Array.from({ length: 8 }, () => 1024),
          STEP_SETTINGS,
          'Qwen2.5-1.5B',
        ),
      ];
    case 'classify':
      return [
        classifyGroup(
          'bf16',
          'deberta-v3-base',
          Array.from({ length: 16 }, () => 512),
        ),
      ];
    case 'score':
      return scoreGroups();
    case 'prefill':
    case 'decode':
      return generateGroups(suite);
    case 'rl':
      return rlGroups();
    case 'trainer':
      return trainerGroups();
    case 'episodes':
      return episodeGroups();
    case 'data':
      return dataGroups();
  }
}

const DIRECTIONS: readonly AttentionCase['direction'][] = ['forward', 'backward'];
const STEP_SETTINGS = ['plain', 'adapters in bf16', 'autocast'];
const STEP_CONFIGS = { 'Qwen2.5-0.5B': QWEN_0_5B, 'Qwen2.5-1.5B': QWEN_1_5B, 'Qwen3.5-0.8B': QWEN3_5_0_8B };

function gemmGroup(
  dtype: FloatType,
  op: GemmCase['op'],
  shapes: readonly Shape[],
  settings: readonly string[],
): Group {
  return {
    title: `${op === 'linear' ? 'linear' : 'gradient of the input'}, ${dtype}`,
    cases: shapes.map((shape) => gemmCase(dtype, op, shape)),
    settings,
  };
}

/** Forward and backward of a frozen linear layer, without and with LoRA beside each other. */
function loraGroup(dtype: FloatType, shapes: readonly Shape[]): Group {
  return {
    title: `frozen linear, forward and backward, ${dtype}`,
    cases: shapes.flatMap((shape) => [0, RANK].map((rank) => gemmCase(dtype, 'both', shape, rank))),
    settings: ['plain'],
  };
}

function headGroups(dtype: FloatType, rows: number): Group[] {
  return (['forward', 'both'] as const).map((direction: HeadCase['direction']) => ({
    title: `head log-probabilities, ${direction === 'forward' ? 'forward' : 'forward and backward'}, ${dtype}`,
    cases: [headCase(dtype, direction, rows, HIDDEN, VOCABULARY)],
    settings: ['all logits', 'chunks of 128 rows'],
  }));
}

/** Ops that belong to activations come in `dtype`; what is f32 by nature is timed once, with bf16. */
function opsGroup(dtype: FloatType, rows: number, hidden: number, mlp: number): Group {
  const verdicts = 64 * rows;
  const sizes: Record<MemoryOp, readonly [rows: number, width: number]> = {
    copy: [rows, mlp],
    rmsnorm: [rows, hidden],
    rmsnorm_backward: [rows, hidden],
    rope: [rows, hidden],
    swiglu: [rows, mlp],
    swiglu_backward: [rows, mlp],
    embedding: [rows, hidden],
    embedding_backward: [rows, hidden],
    adamw: [rows * 2048, 1],
    gae: [verdicts, 1],
    whiten: [verdicts, 1],
    ppo: [verdicts, 1],
    verdict_constraint: [verdicts, 1],
    pairwise: [verdicts, 1],
    dpo: [verdicts, 1],
    sample: [64, VOCABULARY],
    finite: [rows, mlp],
  };
  const ofActivations = MEMORY_OPS.slice(0, MEMORY_OPS.indexOf('adamw'));
  return {
    title: `ops bound by memory, ${dtype}`,
    cases: (dtype === 'bf16' ? MEMORY_OPS : ofActivations).map((op) =>
      opCase(ofActivations.includes(op) ? dtype : 'f32', op, ...sizes[op]),
    ),
    settings: ['plain'],
  };
}

const ENCODERS = { 'deberta-v3-xsmall': DEBERTA_V3_XSMALL, 'deberta-v3-base': DEBERTA_V3_BASE };

function classifyGroup(dtype: FloatType, who: keyof typeof ENCODERS, lengths: readonly number[]): Group {
  const directions: readonly ClassifyCase['direction'][] = ['forward', 'step'];
  return {
    title: `token classifier, ${dtype}`,
    cases: directions.map((direction) => classifyCase(dtype, who, ENCODERS[who], direction, lengths, RANK)),
    settings: ['plain'],
  };
}

function stepGroup(
  dtype: FloatType,
  lengths: readonly number[],
  settings: readonly string[],
  who: keyof typeof STEP_CONFIGS = 'Qwen2.5-0.5B',
): Group {
  return {
    title: `LoRA training step, ${dtype}, ${who}`,
    cases: [stepCase(dtype, who, STEP_CONFIGS[who], lengths, RANK)],
    settings,
  };
}
