/**
 * Pre-norm decoders with RMSNorm, rotary positions, grouped key/value heads and SwiGLU: llama, mistral, qwen2, qwen3, smollm3, whose
 * every fourth layer has no positions, and qwen3_moe, whose MLPs are mixtures of experts (`experts.ts`).
 *
 *     a = RMSNorm(x);  x += o(attend(rope(norm(q(a))), rope(norm(k(a))), v(a)))      norm: qwen3 and qwen3_moe
 *     m = RMSNorm(x);  x += down(silu(gate(m)) · up(m))
 */
import { z } from 'zod';
import { embedding } from '../ops/embedding.js';
import { linearQkv, linearSwiglu } from '../ops/gemm.js';
import { addRmsNorm, type Norm, rmsNorm } from '../ops/norm.js';
import type { Tensor } from '../runtime/tensor.js';
import type { Fields } from '../weights/fields.js';
import type { JsonObject } from '../weights/json.js';
import { type ModuleSpec, moduleSpec } from '../weights/modules.js';
import {
  type Architecture,
  type Forward,
  type InitConflict,
  type LayerMemory,
  NEW_MODEL,
  type NewModel,
  type Stream,
} from './architecture.js';
import { commonJson, type ModelConfig, parseCommon } from './config.js';
import { type FixedKeys, refuseUnknownKeys } from './config-keys.js';
import {
  type ExpertsConfig,
  expertModules,
  expertsJson,
  expertsMemory,
  mixture,
  parseExperts,
} from './experts.js';
import { embeddingModule, headModules } from './head-modules.js';
import { parseRope, type RopeConfig, ropeJson, ropeTable, scaledPositions } from './rope.js';

type LlamaType = 'qwen2' | 'qwen3' | 'qwen3_moe' | 'llama' | 'mistral' | 'smollm3';

/** Of decoders with RMSNorms, rotated heads, some of which share their keys and values, and an MLP with a gate. */
export interface GatedConfig extends ModelConfig {
  readonly intermediateSize: number;
  readonly numHeads: number;
  readonly numKeyValueHeads: number;
  readonly headDim: number;
  readonly rmsNormEps: number;
  readonly rope: RopeConfig;
  /** Per layer: each token and the `window − 1` tokens before it are visible to it; undefined: all before it. */
  readonly slidingWindow: readonly (number | undefined)[];
}

export interface LlamaConfig extends GatedConfig {
  readonly modelType: LlamaType;
  /** Biases of the q, k and v projections. */
  readonly qkvBias: boolean;
  /** Bias of the o projection. */
  readonly outputBias: boolean;
  readonly mlpBias: boolean;
  /** RMSNorm over each head of q and k before the rotation. */
  readonly qkNorm: boolean;
  /** Per layer: whether q and k are rotated. */
  readonly rotates: readonly boolean[];
  /** Of qwen3_moe. */
  readonly experts: ExpertsConfig | undefined;
}

/** Defaults that differ between the types. */
interface Defaults {
  readonly classPrefix: string;
  readonly maxPositions: number;
  /** Undefined: as many as query heads. */
  readonly numKeyValueHeads: number | undefined;
  /** Undefined: hidden size / heads. */
  readonly headDim: number | undefined;
  readonly bosTokenId: number | undefined;
  readonly eosTokenId: number | undefined;
  readonly padTokenId?: number;
  /** Default 10,000. */
  readonly theta?: number;
  /** Default false. */
  readonly tied?: boolean;
}

const QWEN = { maxPositions: 32768, numKeyValueHeads: 32, bosTokenId: undefined, eosTokenId: undefined };
const TYPES: Readonly<Record<LlamaType, Defaults>> = {
  qwen2: { ...QWEN, classPrefix: 'Qwen2', headDim: undefined },
  qwen3: { ...QWEN, classPrefix: 'Qwen3', headDim: 128 },
  qwen3_moe: { ...QWEN, classPrefix: 'Qwen3Moe', headDim: undefined, numKeyValueHeads: 4 },
  llama: {
    classPrefix: 'Llama',
    maxPositions: 2048,
    numKeyValueHeads: undefined,
    headDim: undefined,
    bosTokenId: 1,
    eosTokenId: 2,
  },
  mistral: {
    classPrefix: 'Mistral',
    maxPositions: 131072,
    numKeyValueHeads: 8,
    headDim: undefined,
    bosTokenId: 1,
    eosTokenId: 2,
  },
  smollm3: {
    classPrefix: 'SmolLM3',
    maxPositions: 32768,
    numKeyValueHeads: 4,
    headDim: undefined,
    bosTokenId: 128_000,
    eosTokenId: 128_001,
    padTokenId: 128_004,
    theta: 2_000_000,
    tied: true,
  },
};

/** Of smollm3, one layer of so many is not rotated. */
const UNROTATED = 4;

const FIXED: FixedKeys = {
  is_llama_config: [true, 'true'],
  mlp_bias: [false, 'false (this model type has no bias in its MLP)'],
  partial_rotary_factor: [1, '1 (partial rotation is not supported)'],
  pretraining_tp: [1, '1 (split linear layers are not supported)'],
};

const MAX_HEAD_DIM = 65_536;
const DEFAULT_WINDOW = 4096;
const EMBEDDING = 'model.embed_tokens';
const FINAL_NORM = 'model.norm';

const init = z.strictObject({
  model_type: z.enum(Object.keys(TYPES)).default('qwen2').describe('Architecture, as config.json names it.'),
  ...NEW_MODEL,
  intermediate_size: z.int().min(1).describe('Width inside the MLP; about 2.7 × hidden_size for gated MLPs.'),
  num_key_value_heads: z
    .int()
    .min(1)
    .optional()
    .describe('Number of key/value heads; fewer than query heads shrinks the KV cache. Default: as many.'),
  head_dim: z
    .int()
    .min(1)
    .optional()
    .describe('Width of a head. Default: hidden_size / num_attention_heads.'),
  rope_theta: z.number().positive().default(10000).describe('Base of the rotary frequencies.'),
  rms_norm_eps: z.number().positive().default(1e-6).describe('Epsilon inside the norms.'),
  sliding_window: z
    .int()
    .min(1)
    .optional()
    .describe('Attention window in tokens, of mistral alone. Default: none.'),
  num_experts: z.int().min(1).optional().describe('Experts of each layer, of qwen3_moe alone.'),
  num_experts_per_tok: z
    .int()
    .min(1)
    .optional()
    .describe('Experts that read a token. Default 2, or 1 where there is one.'),
  moe_intermediate_size: z
    .int()
    .min(1)
    .optional()
    .describe('Width inside an expert. Default: intermediate_size / num_experts_per_tok, rounded up.'),
  norm_topk_prob: z
    .boolean()
    .optional()
    .describe("Divide the probabilities of a token's experts by their sum. Default true."),
  initializer_range: z
    .number()
    .positive()
    .default(0.02)
    .describe('Standard deviation of the random weights; small models learn faster with 0.05.'),
});

type Init = z.output<typeof init>;

export const llama: Architecture<LlamaConfig> = {
  modelTypes: Object.keys(TYPES),

  init,
  initConflicts,
  initDefaults(init) {
    const { num_key_value_heads, num_attention_heads, num_experts: experts } = init as Init;
    const common = {
      num_key_value_heads: num_key_value_heads ?? num_attention_heads,
      hidden_act: 'silu',
    };
    if (experts === undefined) return common;
    const {
      num_experts_per_tok = Math.min(2, experts),
      intermediate_size,
      norm_topk_prob = true,
    } = init as Init;
    const { moe_intermediate_size = Math.ceil(intermediate_size / num_experts_per_tok) } = init as Init;
    return { ...common, num_experts_per_tok, moe_intermediate_size, norm_topk_prob };
  },

  parse: (fields, modelType) => parse(fields, modelType as LlamaType),
  json,
  modules,
  computed: /\.rotary_emb\.inv_freq$/,

  memory,
  keyValues,

  constants({ rope: settings, headDim }, positions) {
    const { cos, sin } = ropeTable(settings, positions);
    const shape = [positions, headDim / 2];
    return { cos: { values: cos, shape }, sin: { values: sin, shape } };
  },

  embed: ({ ids, dtype, weight }) => [embedding(ids, weight(`${EMBEDDING}.weight`), dtype)],
  layer,
  finish,
};

/** Two norms with their sums, q k v before and after the rotation, the mixed heads, gate, up and their product; the larger kind of layer. */
function memory(config: LlamaConfig, at: Parameters<Architecture['memory']>[1]): LayerMemory {
  const { experts, hiddenSize } = config;
  const dense = gatedMemory(config, at, { norms: 2, gates: 3 });
  if (!experts?.sparse.includes(true)) return dense;
  const outside = gatedMemory(config, at, { norms: 2, gates: 0 });
  const inside = expertsMemory(experts, hiddenSize, at, 3);
  const sparse = {
    saved: outside.saved + inside.saved,
    backward: outside.backward + inside.backward,
  };
  if (!experts.sparse.includes(false)) return { ...outside, ...sparse };
  return {
    ...dense,
    saved: Math.max(dense.saved, sparse.saved),
    backward: Math.max(dense.backward, sparse.backward),
  };
}

/** Of a layer with so many norms, and so many tensors of the MLP's inner width. */
export function gatedMemory(
  { hiddenSize: h, intermediateSize: i, headDim, numHeads, numKeyValueHeads }: GatedConfig,
  { bytes, rank }: Parameters<Architecture['memory']>[1],
  { norms, gates }: { readonly norms: number; readonly gates: number },
): LayerMemory {
  const [q, kv] = [headDim * numHeads, headDim * numKeyValueHeads];
  return {
    stream: 2 * h * bytes,
    saved: ((2 + norms) * h + 3 * q + 4 * kv + gates * i) * bytes + 4 * (7 * rank + numHeads + norms),
    backward: (3 * h + 2 * q + 2 * kv + gates * i) * bytes,
  };
}

export function keyValues({ numKeyValueHeads: heads, headDim, slidingWindow }: GatedConfig) {
  return slidingWindow.map((window) => ({ heads, headDim, window }));
}

export function finish({ weight }: Forward, { rmsNormEps }: Pick<LlamaConfig, 'rmsNormEps'>, stream: Stream) {
  const { x, norm } = entering(stream, { weight: weight(`${FINAL_NORM}.weight`), eps: rmsNormEps });
  return norm ? rmsNorm(x, norm.weight, norm.eps) : x;
}

function layer(forward: Forward, config: LlamaConfig, index: number, stream: Stream): Stream {
  const { positions, weight, projection, projectOnto, constant } = forward;
  const { headDim, rmsNormEps: eps } = config;
  const name = (module: string) => `model.layers.${index}.${module}`;
  const norm = (module: string) => weight(`${name(module)}.weight`);

  const before = entering(stream, { weight: norm('input_layernorm'), eps });
  const own = (module: string) => projection(name(`self_attn.${module}`));
  const [q, k, v] = linearQkv(before.x, own('q_proj'), own('k_proj'), own('v_proj'), before.norm);
  const mixed = forward.attend(q, k, v, {
    layer: index,
    headDim,
    rotary: config.rotates[index] ? { cos: constant('cos'), sin: constant('sin'), positions } : undefined,
    norms: config.qkNorm ? { q: norm('self_attn.q_norm'), k: norm('self_attn.k_norm'), eps } : undefined,
    window: config.slidingWindow[index],
  });
  const attended = projectOnto(before.sum, mixed, name('self_attn.o_proj'));

  const after = entering(attended, { weight: norm('post_attention_layernorm'), eps });
  if (config.experts?.sparse[index]) {
    const x = after.norm ? rmsNorm(after.x, after.norm.weight, after.norm.eps) : after.x;
    return [mixture(forward, config.experts, name('mlp'), x), after.sum];
  }
  const [gate, up] = [projection(name('mlp.gate_proj')), projection(name('mlp.up_proj'))];
  const activated = linearSwiglu(after.x, gate, up, after.norm);
  return projectOnto(after.sum, activated, name('mlp.down_proj'));
}

/** What follows a norm reads x: normed together with the addition, or still to be normed. */
export function entering([delta, residual]: Stream, norm: Norm) {
  const x = delta as Tensor;
  if (!residual) return { x, sum: x, norm };
  const { y, sum } = addRmsNorm(x, residual, norm.weight, norm.eps);
  return { x: y, sum, norm: undefined };
}

function modules(config: LlamaConfig): readonly ModuleSpec[] {
  const { hiddenSize, intermediateSize, headDim, qkvBias, outputBias, mlpBias, experts } = config;
  const queries = config.numHeads * headDim;
  const keys = config.numKeyValueHeads * headDim;
  const drawn = { kind: 'normal', deviation: config.initializerRange } as const;
  const norm = (name: string, size: number) => moduleSpec('norm', name, [size], { kind: 'one' });
  const linear = (name: string, shape: readonly [number, number], bias: boolean) =>
    moduleSpec('linear', name, shape, drawn, { bias });
  const layers = Array.from({ length: config.numLayers }, (_, layer) => {
    const prefix = `model.layers.${layer}`;
    return [
      norm(`${prefix}.input_layernorm`, hiddenSize),
      linear(`${prefix}.self_attn.q_proj`, [queries, hiddenSize], qkvBias),
      linear(`${prefix}.self_attn.k_proj`, [keys, hiddenSize], qkvBias),
      linear(`${prefix}.self_attn.v_proj`, [keys, hiddenSize], qkvBias),
      linear(`${prefix}.self_attn.o_proj`, [hiddenSize, queries], outputBias),
      ...(config.qkNorm
        ? [norm(`${prefix}.self_attn.q_norm`, headDim), norm(`${prefix}.self_attn.k_norm`, headDim)]
        : []),
      norm(`${prefix}.post_attention_layernorm`, hiddenSize),
      ...(experts?.sparse[layer]
        ? expertModules(`${prefix}.mlp`, hiddenSize, experts, drawn)
        : [
            linear(`${prefix}.mlp.gate_proj`, [intermediateSize, hiddenSize], mlpBias),
            linear(`${prefix}.mlp.up_proj`, [intermediateSize, hiddenSize], mlpBias),
            linear(`${prefix}.mlp.down_proj`, [hiddenSize, intermediateSize], mlpBias),
          ]),
    ];
  });
  return [
    embeddingModule(EMBEDDING, config),
    ...layers.flat(),
    norm(FINAL_NORM, hiddenSize),
    ...headModules(config),
  ];
}

function parse(fields: Fields, modelType: LlamaType): LlamaConfig {
  const defaults = TYPES[modelType];
  const common = parseCommon(
    fields,
    { modelType, classPrefix: defaults.classPrefix, heads: ['causal', 'sequence', 'token'] },
    {
      ...defaults,
      tieWordEmbeddings: defaults.tied ?? false,
      padTokenId: defaults.padTokenId,
      initializerRange: 0.02,
    },
  );
  const heads = parseHeads(fields, common.hiddenSize, defaults);
  const activation = fields.string('hidden_act') ?? 'silu';
  if (activation !== 'silu' && activation !== 'swish')
    fields.fail('hidden_act', "'silu'; other activations are not supported");
  const biased = modelType !== 'qwen2' && modelType !== 'mistral';
  const bias = biased && fields.boolean('attention_bias') === true;
  if (modelType === 'qwen2' && fields.boolean('attention_bias') === false) {
    fields.fail('attention_bias', 'nothing (qwen2 always has biases on q, k and v)');
  }
  const rope = parseRope(fields, heads.headDim, common.maxPositions, defaults.theta);
  // The checkpoint has it, and transformers does not read it.
  if (modelType === 'smollm3') fields.integer('pretraining_tp');
  const rotates = parseRotated(fields, modelType, common.numLayers);
  const config: LlamaConfig = {
    ...common,
    maxPositions: scaledPositions(rope, common.maxPositions),
    modelType,
    intermediateSize: fields.requiredInteger('intermediate_size'),
    ...heads,
    rmsNormEps: fields.number('rms_norm_eps', 0) ?? 1e-6,
    rope,
    qkvBias: modelType === 'qwen2' || bias,
    outputBias: bias,
    mlpBias: (modelType === 'llama' || modelType === 'smollm3') && fields.boolean('mlp_bias') === true,
    qkNorm: modelType === 'qwen3' || modelType === 'qwen3_moe',
    rotates,
    experts: modelType === 'qwen3_moe' ? parseExperts(fields, common.numLayers) : undefined,
    slidingWindow: parseSlidingWindow(fields, modelType, common.numLayers, rotates),
  };
  refuseUnknownKeys(fields, FIXED);
  return config;
}

function json(config: LlamaConfig): JsonObject {
  const { rope_theta, rope_scaling, original_max_position_embeddings, num_local_experts, ...common } =
    commonJson(config);
  const { modelType, experts } = config;
  const windows = config.slidingWindow.filter((window) => window !== undefined);
  // The class of qwen2 has no head_dim of its own; older versions of transformers do not read it there.
  const impliedHeadDim = modelType === 'qwen2' && config.headDim * config.numHeads === config.hiddenSize;
  return {
    ...common,
    intermediate_size: config.intermediateSize,
    num_attention_heads: config.numHeads,
    num_key_value_heads: config.numKeyValueHeads,
    ...(impliedHeadDim ? {} : { head_dim: config.headDim }),
    hidden_act: 'silu',
    rms_norm_eps: config.rmsNormEps,
    rope_parameters: ropeJson(config.rope),
    ...(modelType !== 'qwen2' && modelType !== 'mistral' ? { attention_bias: config.qkvBias } : {}),
    ...(modelType === 'llama' || modelType === 'smollm3' ? { mlp_bias: config.mlpBias } : {}),
    ...(modelType === 'smollm3' ? { no_rope_layers: config.rotates.map(Number) } : {}),
    ...(experts ? expertsJson(experts) : {}),
    ...(modelType === 'mistral' ? { sliding_window: windows[0] ?? null } : {}),
    ...(modelType === 'qwen3_moe'
      ? { use_sliding_window: windows.length > 0, sliding_window: windows[0] ?? null }
      : {}),
    ...(modelType === 'qwen2' || modelType === 'qwen3' || modelType === 'smollm3'
      ? {
          use_sliding_window: windows.length > 0,
          sliding_window: windows[0] ?? null,
          layer_types: config.slidingWindow.map((window) =>
            window === undefined ? 'full_attention' : 'sliding_attention',
          ),
        }
      : {}),
  };
}

function parseHeads(fields: Fields, hiddenSize: number, defaults: Defaults) {
  const numHeads = fields.requiredInteger('num_attention_heads');
  // An explicit null means one key/value head per query head, for every type.
  const absent = Object.hasOwn(fields.object, 'num_key_value_heads') ? undefined : defaults.numKeyValueHeads;
  const numKeyValueHeads = fields.integer('num_key_value_heads', 1) ?? absent ?? numHeads;
  if (numHeads % numKeyValueHeads !== 0) {
    fields.fail('num_key_value_heads', `a divisor of num_attention_heads (${numHeads})`);
  }
  const given = fields.integer('head_dim', 1) ?? defaults.headDim;
  if (given === undefined && hiddenSize % numHeads !== 0) {
    fields.fail('hidden_size', `a multiple of num_attention_heads (${numHeads}), or head_dim beside it`);
  }
  const headDim = given ?? hiddenSize / numHeads;
  if (headDim % 2 !== 0 || headDim > MAX_HEAD_DIM) {
    const range = `an even number up to ${MAX_HEAD_DIM}`;
    fields.fail('head_dim', `${range} (hidden_size / num_attention_heads is ${hiddenSize / numHeads})`);
  }
  return { numHeads, numKeyValueHeads, headDim };
}

/** `no_rope_layers` has a 1 for each layer that is rotated. */
function parseRotated(fields: Fields, modelType: LlamaType, numLayers: number): boolean[] {
  if (modelType !== 'smollm3') return Array(numLayers).fill(true);
  const interval = fields.integer('no_rope_layer_interval', 1) ?? UNROTATED;
  const marks = fields.integers('no_rope_layers');
  if (marks !== undefined && marks.length < numLayers)
    fields.fail('no_rope_layers', `a 1 or 0 for each of the ${numLayers} layers`);
  return Array.from({ length: numLayers }, (_, index) =>
    marks ? marks[index] !== 0 : (index + 1) % interval !== 0,
  );
}

/** Of each layer; undefined where the file does not say. */
export function parseLayerTypes(fields: Fields, numLayers: number): readonly string[] | undefined {
  const types = fields.strings('layer_types');
  if (types !== undefined && types.length !== numLayers)
    fields.fail('layer_types', `one entry for each of the ${numLayers} layers`);
  const other = types?.find((type) => type !== 'full_attention' && type !== 'sliding_attention');
  if (other !== undefined)
    fields.fail('layer_types', `only full_attention and sliding_attention ('${other}' is not supported)`);
  return types;
}

/**
 * Qwen windows the layers from `max_window_layers` on, SmolLM3 those that are not rotated, both those that `layer_types` names; Mistral
 * and qwen3_moe window all.
 */
function parseSlidingWindow(
  fields: Fields,
  modelType: LlamaType,
  numLayers: number,
  rotates: readonly boolean[],
): (number | undefined)[] {
  const layerTypes = parseLayerTypes(fields, numLayers);
  const given = fields.integer('sliding_window', 1);
  const absent = Object.hasOwn(fields.object, 'sliding_window') ? undefined : DEFAULT_WINDOW;

  if (modelType === 'llama') {
    if (given !== undefined) fields.fail('sliding_window', 'nothing (llama has no sliding window)');
    if (layerTypes?.includes('sliding_attention'))
      fields.fail('layer_types', 'only full_attention for llama');
    return Array(numLayers).fill(undefined);
  }
  if (modelType === 'mistral' || modelType === 'qwen3_moe') {
    const used = modelType === 'mistral' || fields.boolean('use_sliding_window') === true;
    // Older files have it, and no layer of this type asks for it.
    if (modelType === 'qwen3_moe') fields.integer('max_window_layers');
    const window = used ? (given ?? absent) : undefined;
    const type = window === undefined ? 'full_attention' : 'sliding_attention';
    if (layerTypes?.some((layerType) => layerType !== type)) {
      fields.fail(
        'layer_types',
        `only ${type} (${modelType} uses sliding_window ${window ?? 'nowhere'} in every layer)`,
      );
    }
    return Array(numLayers).fill(window);
  }
  const window = fields.boolean('use_sliding_window') === true ? (given ?? absent) : undefined;
  const from = fields.integer('max_window_layers') ?? 28;
  if (window === undefined && layerTypes?.includes('sliding_attention')) {
    fields.fail('layer_types', 'only full_attention without use_sliding_window and sliding_window');
  }
  return Array.from({ length: numLayers }, (_, layer) => {
    const unnamed = modelType === 'smollm3' ? !rotates[layer] : layer >= from;
    const sliding = layerTypes === undefined ? unnamed : layerTypes[layer] === 'sliding_attention';
    return sliding ? window : undefined;
  });
}

function initConflicts(init: NewModel): readonly InitConflict[] {
  const { model_type, hidden_size, num_attention_heads, num_key_value_heads, head_dim, sliding_window } =
    init as Init;
  const keyValueHeads = num_key_value_heads ?? num_attention_heads;
  const conflicts: InitConflict[] = [];
  if (head_dim === undefined && hidden_size % num_attention_heads !== 0) {
    conflicts.push({
      key: 'num_attention_heads',
      message: `hidden_size (${hidden_size}) must be a multiple of num_attention_heads (${num_attention_heads}), or set head_dim`,
    });
  }
  if (num_attention_heads % keyValueHeads !== 0) {
    conflicts.push({
      key: 'num_key_value_heads',
      message: `num_attention_heads (${num_attention_heads}) must be a multiple of num_key_value_heads (${keyValueHeads})`,
    });
  }
  if (sliding_window !== undefined && model_type !== 'mistral') {
    conflicts.push({
      key: 'sliding_window',
      message: `sliding_window is for model_type "mistral", found ${JSON.stringify(model_type)}`,
    });
  }
  return [...conflicts, ...expertConflicts(init as Init)];
}

const EXPERT_KEYS = [
  'num_experts',
  'num_experts_per_tok',
  'moe_intermediate_size',
  'norm_topk_prob',
] as const satisfies readonly (keyof Init)[];

function expertConflicts(init: Init): readonly InitConflict[] {
  const { model_type, num_experts: count, num_experts_per_tok: each } = init;
  if (model_type !== 'qwen3_moe')
    return EXPERT_KEYS.filter((key) => init[key] !== undefined).map((key) => ({
      key,
      message: `${key} is for model_type "qwen3_moe", found ${JSON.stringify(model_type)}`,
    }));
  if (count === undefined)
    return [{ key: 'num_experts', message: 'model_type "qwen3_moe" needs num_experts' }];
  if (each === undefined || each <= count) return [];
  const message = `num_experts_per_tok (${each}) must be at most num_experts (${count})`;
  return [{ key: 'num_experts_per_tok', message }];
}
