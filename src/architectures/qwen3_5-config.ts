/** `config.json` of Qwen3.5, dense or with experts: the text model alone, or with a part for images, which is not read. */

import type { DeltaHeads } from '../ops/recurrence.js';
import { Fields } from '../weights/fields.js';
import type { JsonObject } from '../weights/json.js';
import { commonJson, type ModelConfig, parseCommon, parseHeads } from './config.js';
import { type FixedKeys, refuseUnknownKeys } from './config-keys.js';
import { type ExpertsConfig, parseSharedExperts, sharedExpertsJson } from './experts.js';
import { parseRopeSettings, type RopeConfig, ropeJson } from './rope.js';

export interface Qwen35Config extends ModelConfig {
  readonly modelType: Qwen35Type;
  /** Width inside the MLPs; of a model with experts, inside one of them. */
  readonly intermediateSize: number;
  readonly numHeads: number;
  readonly numKeyValueHeads: number;
  readonly headDim: number;
  readonly rmsNormEps: number;
  /** The rotation; it covers a part of each head. */
  readonly rope: RopeConfig;
  /** Biases of the q, k, v and o projections. */
  readonly bias: boolean;
  readonly layers: readonly ('linear' | 'full')[];
  readonly delta: DeltaHeads & { readonly heads: number; readonly taps: number };
  /** Experts in place of the MLP of each layer; undefined: there are none. */
  readonly experts: ExpertsConfig | undefined;
}

type Qwen35Type = 'qwen3_5_text' | 'qwen3_5_moe_text';

const THETA = 10_000;
const PARTIAL = 0.25;
/** One layer of so many attends. */
const INTERVAL = 4;
const MAX_TAPS = 8;
const CLASSES: Readonly<Record<string, string>> = {
  Qwen3_5ForConditionalGeneration: 'Qwen3_5ForCausalLM',
  Qwen3_5MoeForConditionalGeneration: 'Qwen3_5MoeForCausalLM',
  Qwen3_5TextForSequenceClassification: 'Qwen3_5ForSequenceClassification',
};

/** The text model of a model that sees, by `model_type`. */
const SEEING: Readonly<Record<string, Qwen35Type>> = {
  qwen3_5: 'qwen3_5_text',
  qwen3_5_moe: 'qwen3_5_moe_text',
};

const FIXED: FixedKeys = {
  mamba_ssm_dtype: ['float32', "'float32', in which states are kept"],
};
/** Keys of the part for images, which is not read. */
const UNREAD = [
  'vision_config',
  'image_token_id',
  'video_token_id',
  'vision_start_token_id',
  'vision_end_token_id',
];
/** Keys of the prediction of several tokens, which transformers does not read either. */
const MTP = ['mtp_num_hidden_layers', 'mtp_use_dedicated_embeddings'];

export function parseQwen35(file: Fields): Qwen35Config {
  const fields = textFields(file);
  const modelType = fields.object.model_type as Qwen35Type;
  const common = parseCommon(
    fields,
    {
      modelType,
      classPrefix: modelType === 'qwen3_5_moe_text' ? 'Qwen3_5Moe' : 'Qwen3_5',
      heads: ['causal', 'sequence', 'token'],
    },
    {
      maxPositions: 32_768,
      tieWordEmbeddings: false,
      bosTokenId: undefined,
      eosTokenId: undefined,
      padTokenId: undefined,
      initializerRange: 0.02,
    },
  );
  const { numHeads, numKeyValueHeads, headDim } = parseHeads(fields);
  const activation = fields.string('hidden_act') ?? 'silu';
  if (activation !== 'silu' && activation !== 'swish')
    fields.fail('hidden_act', "'silu'; other activations are not supported");
  if (fields.boolean('attn_output_gate') === false)
    fields.fail('attn_output_gate', 'true (attention without its gate is not supported)');
  for (const key of MTP) fields.value(key);
  const experts = modelType === 'qwen3_5_moe_text' ? parseSharedExperts(fields, common.numLayers) : undefined;
  const config: Qwen35Config = {
    ...common,
    modelType,
    intermediateSize: experts?.intermediateSize ?? fields.requiredInteger('intermediate_size'),
    experts,
    numHeads,
    numKeyValueHeads,
    headDim,
    rmsNormEps: fields.number('rms_norm_eps', 0) ?? 1e-6,
    rope: parsePartialRope(fields, headDim, common.maxPositions),
    bias: fields.boolean('attention_bias') === true,
    layers: parseLayers(fields, common.numLayers),
    delta: parseDelta(fields),
  };
  refuseUnknownKeys(fields, FIXED);
  return config;
}

/** The keys of the text model, in the file or in its `text_config`. */
function textFields(file: Fields): Fields {
  const flat = (object: JsonObject): JsonObject => {
    const { architectures } = object;
    const renamed =
      Array.isArray(architectures) && architectures.map((name) => CLASSES[String(name)] ?? name);
    return renamed ? { ...object, architectures: renamed } : object;
  };
  const modelType = SEEING[file.object.model_type as string];
  if (modelType === undefined) return new Fields(flat(file.object), file.where);
  const text = file.nested('text_config');
  if (!text) return file.fail('text_config', 'an object with the keys of the text model');
  const tied = file.boolean('tie_word_embeddings');
  const inner = text.boolean('tie_word_embeddings');
  if (tied !== undefined && inner !== undefined && tied !== inner)
    text.fail('tie_word_embeddings', `the value of tie_word_embeddings beside text_config, ${tied}`);
  for (const key of ['model_type', 'text_config', ...UNREAD]) file.value(key);
  const { model_type: _, text_config: _text, ...outer } = file.object;
  const shared = Object.fromEntries(Object.entries(outer).filter(([key]) => !UNREAD.includes(key)));
  return new Fields(flat({ ...shared, ...text.object, model_type: modelType }), text.where);
}

/** The sections by which images turn are all the same for text. */
function parsePartialRope(fields: Fields, headDim: number, maxPositions: number): RopeConfig {
  const settings = fields.nested('rope_parameters') ?? new Fields({}, `${fields.where}: rope_parameters`);
  const partial =
    settings.number('partial_rotary_factor', 0) ?? fields.number('partial_rotary_factor', 0) ?? PARTIAL;
  const turned = Math.floor(headDim * partial);
  if (partial > 1 || turned < 2 || turned % 2 !== 0)
    settings.fail('partial_rotary_factor', `a part of head_dim (${headDim}) that is an even number`);
  const { partial_rotary_factor, mrope_section, mrope_interleaved, ...own } = settings.object;
  const theta = fields.number('rope_theta', 0) ?? THETA;
  return parseRopeSettings(new Fields(own, settings.where), turned, maxPositions, theta);
}

function parseLayers(fields: Fields, numLayers: number): Qwen35Config['layers'] {
  const interval = fields.integer('full_attention_interval', 1) ?? INTERVAL;
  const types = fields.strings('layer_types');
  if (types !== undefined && types.length !== numLayers)
    fields.fail('layer_types', `one entry for each of the ${numLayers} layers`);
  const other = types?.find((type) => type !== 'full_attention' && type !== 'linear_attention');
  if (other !== undefined)
    fields.fail('layer_types', `only full_attention and linear_attention ('${other}' is not supported)`);
  return Array.from({ length: numLayers }, (_, index) => {
    const full = types ? types[index] === 'full_attention' : (index + 1) % interval === 0;
    return full ? 'full' : 'linear';
  });
}

function parseDelta(fields: Fields): Qwen35Config['delta'] {
  const keyHeads = fields.integer('linear_num_key_heads', 1) ?? 16;
  const heads = fields.integer('linear_num_value_heads', 1) ?? 32;
  if (heads % keyHeads !== 0)
    fields.fail('linear_num_value_heads', `a multiple of linear_num_key_heads (${keyHeads})`);
  return {
    keyHeads,
    heads,
    keySize: fields.integer('linear_key_head_dim', 1, 65_536) ?? 128,
    valueSize: fields.integer('linear_value_head_dim', 1, 65_536) ?? 128,
    taps: fields.integer('linear_conv_kernel_dim', 2, MAX_TAPS) ?? 4,
  };
}

export function qwen35Json(config: Qwen35Config): JsonObject {
  const { rope_theta, partial_rotary_factor, full_attention_interval, ...common } = commonJson(config);
  const { delta, rope, headDim, experts } = config;
  return {
    ...common,
    ...(experts ? sharedExpertsJson(experts) : { intermediate_size: config.intermediateSize }),
    num_attention_heads: config.numHeads,
    num_key_value_heads: config.numKeyValueHeads,
    head_dim: headDim,
    hidden_act: 'silu',
    rms_norm_eps: config.rmsNormEps,
    attention_bias: config.bias,
    rope_parameters: { ...ropeJson(rope), partial_rotary_factor: rope.headDim / headDim },
    layer_types: config.layers.map((kind) => `${kind}_attention`),
    linear_num_key_heads: delta.keyHeads,
    linear_num_value_heads: delta.heads,
    linear_key_head_dim: delta.keySize,
    linear_value_head_dim: delta.valueSize,
    linear_conv_kernel_dim: delta.taps,
  };
}
