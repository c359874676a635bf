/** `config.json` of the decoders in `llama.ts`: read, checked, written. */
import type { Fields } from '../weights/fields.js';
import type { JsonObject } from '../weights/json.js';
import { commonJson, type ModelConfig, parseCommon } from './config.js';
import { type FixedKeys, refuseUnknownKeys } from './config-keys.js';
import { type ExpertsConfig, expertsJson, parseExperts } from './experts.js';
import { parseRope, type RopeConfig, ropeKeys, scaledPositions } from './rope.js';

export type LlamaType = 'qwen2' | 'qwen3' | 'qwen3_moe' | 'llama' | 'mistral' | 'smollm3';

/**
 * Configuration of decoders with RMSNorms, rotary heads, some of which share their keys and values, and a gated MLP.
 */
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
  /** Experts, for qwen3_moe. */
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
export const TYPES: Readonly<Record<LlamaType, Defaults>> = {
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

/** One layer in this many has no RoPE, in smollm3. */
const UNROTATED = 4;

const FIXED: FixedKeys = {
  is_llama_config: [true, 'true'],
  mlp_bias: [false, 'false (this model type has no bias in its MLP)'],
  partial_rotary_factor: [1, '1 (partial rotation is not supported)'],
  pretraining_tp: [1, '1 (split linear layers are not supported)'],
};

const MAX_HEAD_DIM = 65_536;
const DEFAULT_WINDOW = 4096;

export function parseLlama(fields: Fields, modelType: LlamaType): LlamaConfig {
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
  // The checkpoint has this key, and transformers does not read it.
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

export function llamaJson(config: LlamaConfig): JsonObject {
  const { rope_parameters, original_max_position_embeddings, num_local_experts, ...common } =
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
    ...ropeKeys(config.rope),
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

/** Type of each layer; undefined where the file does not have it. */
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
    // Older files have this key, and no layer of this type needs it.
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
