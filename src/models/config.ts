/**
 * `config.json` of the decoder models, read as transformers 5.18 reads it: its defaults for absent keys, both spellings of the rotary
 * settings and of the dtype. What is not implemented is refused by name (see `config-keys.ts`), never ignored.
 */
import { join } from 'node:path';
import { show, WeightsError } from '../weights/error.js';
import { Fields } from '../weights/fields.js';
import { isJsonObject, type JsonObject, type JsonValue, readJsonObject } from '../weights/json.js';
import { refuseUnknownKeys } from './config-keys.js';
import { parseRope, type RopeConfig, ropeJson } from './rope.js';

export type DecoderType = 'qwen2' | 'qwen3' | 'llama' | 'mistral';
export type DtypeName = 'float32' | 'bfloat16' | 'float16';

/** What stands on the trunk, from the name of the architecture. */
export type ModelHead =
  /** `…ForCausalLM`: logits [tokens, vocabSize] by `lm_head`, or by the embedding where they are tied */
  | { readonly kind: 'causal' }
  /** `…ForSequenceClassification`: `score` at the last token, without a bias */
  | { readonly kind: 'sequence'; readonly numLabels: number; readonly labels: readonly string[] | undefined }
  /** `…ForTokenClassification`: dropout (in training), then `score` at every token */
  | {
      readonly kind: 'token';
      readonly numLabels: number;
      readonly labels: readonly string[] | undefined;
      readonly bias: boolean;
      readonly dropout: number;
    };

/** A pre-norm decoder with RMSNorm, rotary positions, grouped key/value heads and SwiGLU. */
export interface DecoderConfig {
  readonly family: 'decoder';
  readonly modelType: DecoderType;
  readonly head: ModelHead;
  readonly hiddenSize: number;
  readonly intermediateSize: number;
  readonly numLayers: number;
  readonly numHeads: number;
  readonly numKeyValueHeads: number;
  readonly headDim: number;
  readonly vocabSize: number;
  readonly maxPositions: number;
  readonly rmsNormEps: number;
  readonly rope: RopeConfig;
  readonly tieWordEmbeddings: boolean;
  /** Biases of the q, k and v projections. */
  readonly qkvBias: boolean;
  /** Bias of the o projection. */
  readonly outputBias: boolean;
  readonly mlpBias: boolean;
  /** RMSNorm over each head of q and k before the rotation. */
  readonly qkNorm: boolean;
  /** Per layer: a token sees itself and the `window − 1` tokens before it; undefined sees all before it. */
  readonly slidingWindow: readonly (number | undefined)[];
  /** In which the weights are stored, where the file says so. */
  readonly dtype: DtypeName | undefined;
  readonly bosTokenId: number | undefined;
  readonly eosTokenIds: readonly number[];
  readonly padTokenId: number | undefined;
  /** Standard deviation of new weights. */
  readonly initializerRange: number;
  /** The file as it was read. */
  readonly source: JsonObject;
}

/** A configuration of any supported model; `family` tells them apart. */
export type ModelConfig = DecoderConfig;

interface Defaults {
  /** Prefix of the class names in `architectures`. */
  readonly prefix: string;
  readonly maxPositions: number;
  /** Undefined: as many as query heads. */
  readonly numKeyValueHeads: number | undefined;
  /** Undefined: hidden size / heads. */
  readonly headDim: number | undefined;
  readonly bosTokenId: number | undefined;
  readonly eosTokenId: number | undefined;
}

const DEFAULTS: Readonly<Record<DecoderType, Defaults>> = {
  qwen2: {
    prefix: 'Qwen2',
    maxPositions: 32768,
    numKeyValueHeads: 32,
    headDim: undefined,
    bosTokenId: undefined,
    eosTokenId: undefined,
  },
  qwen3: {
    prefix: 'Qwen3',
    maxPositions: 32768,
    numKeyValueHeads: 32,
    headDim: 128,
    bosTokenId: undefined,
    eosTokenId: undefined,
  },
  llama: {
    prefix: 'Llama',
    maxPositions: 2048,
    numKeyValueHeads: undefined,
    headDim: undefined,
    bosTokenId: 1,
    eosTokenId: 2,
  },
  mistral: {
    prefix: 'Mistral',
    maxPositions: 131072,
    numKeyValueHeads: 8,
    headDim: undefined,
    bosTokenId: 1,
    eosTokenId: 2,
  },
};

const MAX_LAYERS = 10_000;
const MAX_HEAD_DIM = 65_536;
const DEFAULT_WINDOW = 4096;
const DTYPES: readonly string[] = ['float32', 'bfloat16', 'float16'] satisfies DtypeName[];

/**
 * Reads `config.json` of a model directory.
 *
 * @throws WeightsError naming file and key
 */
export function readModelConfig(directory: string): ModelConfig {
  const path = join(directory, 'config.json');
  return parseModelConfig(readJsonObject(path), path);
}

/** @param where the file, for errors */
export function parseModelConfig(json: JsonObject, where: string): ModelConfig {
  const modelType = json.model_type;
  if (typeof modelType === 'string' && isDecoderType(modelType)) return parseDecoder(json, where, modelType);
  throw new WeightsError(
    `${where}: model_type: expected one of ${Object.keys(DEFAULTS).join(', ')}, found ${show(modelType ?? 'nothing')}; other models are not supported`,
  );
}

/**
 * The configuration as a `config.json` in the newer spelling (`rope_parameters`, `dtype`), which transformers 5 reads. Keys of the
 * source that do not concern the maths are kept.
 */
export function modelConfigJson(config: ModelConfig): JsonObject {
  const { rope_theta, rope_scaling, torch_dtype, num_labels, original_max_position_embeddings, ...source } =
    config.source;
  const windows = config.slidingWindow.filter((window) => window !== undefined);
  const qwen = config.modelType === 'qwen2' || config.modelType === 'qwen3';
  const layerTypes = config.slidingWindow.map((window) =>
    window === undefined ? 'full_attention' : 'sliding_attention',
  );
  // The class of qwen2 has no head_dim of its own; older versions of transformers do not read it there.
  const impliedHeadDim =
    config.modelType === 'qwen2' && config.headDim * config.numHeads === config.hiddenSize;
  const { head } = config;
  const labels = head.kind === 'causal' ? undefined : (head.labels ?? defaultLabels(head.numLabels));
  return sortKeys({
    ...source,
    model_type: config.modelType,
    architectures: [architectureName(config)],
    hidden_size: config.hiddenSize,
    intermediate_size: config.intermediateSize,
    num_hidden_layers: config.numLayers,
    num_attention_heads: config.numHeads,
    num_key_value_heads: config.numKeyValueHeads,
    ...(impliedHeadDim ? {} : { head_dim: config.headDim }),
    vocab_size: config.vocabSize,
    max_position_embeddings: config.maxPositions,
    hidden_act: 'silu',
    rms_norm_eps: config.rmsNormEps,
    rope_parameters: ropeJson(config.rope),
    tie_word_embeddings: config.tieWordEmbeddings,
    initializer_range: config.initializerRange,
    bos_token_id: config.bosTokenId ?? null,
    eos_token_id: eosJson(config.eosTokenIds),
    pad_token_id: config.padTokenId ?? null,
    ...(config.dtype === undefined ? {} : { dtype: config.dtype }),
    ...(config.modelType === 'llama' || config.modelType === 'qwen3'
      ? { attention_bias: config.qkvBias }
      : {}),
    ...(config.modelType === 'llama' ? { mlp_bias: config.mlpBias } : {}),
    ...(config.modelType === 'mistral' ? { sliding_window: windows[0] ?? null } : {}),
    ...(qwen
      ? {
          use_sliding_window: windows.length > 0,
          sliding_window: windows[0] ?? null,
          layer_types: layerTypes,
        }
      : {}),
    ...(labels === undefined
      ? {}
      : { id2label: { ...labels }, label2id: Object.fromEntries(labels.map((name, id) => [name, id])) }),
    ...(head.kind === 'token'
      ? { classifier_dropout: head.dropout, token_classification_bias: head.bias }
      : {}),
  });
}

/** The class name that transformers gives to the model, such as `Qwen2ForCausalLM`. */
export function architectureName({ modelType, head }: DecoderConfig): string {
  return `${DEFAULTS[modelType].prefix}For${HEAD_CLASSES[head.kind]}`;
}

const HEAD_CLASSES: Readonly<Record<ModelHead['kind'], string>> = {
  causal: 'CausalLM',
  sequence: 'SequenceClassification',
  token: 'TokenClassification',
};

function isDecoderType(name: string): name is DecoderType {
  return Object.hasOwn(DEFAULTS, name);
}

function parseDecoder(source: JsonObject, where: string, modelType: DecoderType): DecoderConfig {
  const fields = new Fields(source, where);
  fields.string('model_type');
  const defaults = DEFAULTS[modelType];
  const numLayers = fields.requiredInteger('num_hidden_layers', 1, MAX_LAYERS);
  const hiddenSize = fields.requiredInteger('hidden_size');
  const heads = parseHeads(fields, hiddenSize, defaults);
  const maxPositions = fields.integer('max_position_embeddings', 1) ?? defaults.maxPositions;
  const activation = fields.string('hidden_act') ?? 'silu';
  if (activation !== 'silu' && activation !== 'swish')
    fields.fail('hidden_act', "'silu'; other activations are not supported");
  const bias = (modelType === 'llama' || modelType === 'qwen3') && fields.boolean('attention_bias') === true;
  if (modelType === 'qwen2' && fields.boolean('attention_bias') === false) {
    fields.fail('attention_bias', 'nothing (qwen2 always has biases on q, k and v)');
  }
  const config: DecoderConfig = {
    family: 'decoder',
    modelType,
    head: parseHead(fields, defaults.prefix),
    hiddenSize,
    intermediateSize: fields.requiredInteger('intermediate_size'),
    numLayers,
    ...heads,
    vocabSize: fields.requiredInteger('vocab_size'),
    maxPositions,
    rmsNormEps: fields.number('rms_norm_eps', 0) ?? 1e-6,
    rope: parseRope(fields, heads.headDim, maxPositions),
    tieWordEmbeddings: fields.boolean('tie_word_embeddings') ?? false,
    qkvBias: modelType === 'qwen2' || bias,
    outputBias: bias,
    mlpBias: modelType === 'llama' && fields.boolean('mlp_bias') === true,
    qkNorm: modelType === 'qwen3',
    slidingWindow: parseSlidingWindow(fields, modelType, numLayers),
    dtype: parseDtype(fields),
    bosTokenId: parseTokenId(fields, 'bos_token_id', defaults.bosTokenId),
    eosTokenIds: fields.integers('eos_token_id') ?? absentEos(fields, defaults.eosTokenId),
    padTokenId: parseTokenId(fields, 'pad_token_id', undefined),
    initializerRange: fields.number('initializer_range') ?? 0.02,
    source,
  };
  refuseUnknownKeys(fields);
  return config;
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

/** Qwen windows the layers from `max_window_layers` on, or those that `layer_types` names; Mistral windows all. */
function parseSlidingWindow(
  fields: Fields,
  modelType: DecoderType,
  numLayers: number,
): (number | undefined)[] {
  const layerTypes = fields.strings('layer_types');
  if (layerTypes !== undefined && layerTypes.length !== numLayers) {
    fields.fail('layer_types', `one entry for each of the ${numLayers} layers`);
  }
  const other = layerTypes?.find((type) => type !== 'full_attention' && type !== 'sliding_attention');
  if (other !== undefined) {
    fields.fail('layer_types', `only full_attention and sliding_attention ('${other}' is not supported)`);
  }
  const given = fields.integer('sliding_window', 1);
  const absent = Object.hasOwn(fields.object, 'sliding_window') ? undefined : DEFAULT_WINDOW;

  if (modelType === 'llama') {
    if (given !== undefined) fields.fail('sliding_window', 'nothing (llama has no sliding window)');
    if (layerTypes?.includes('sliding_attention'))
      fields.fail('layer_types', 'only full_attention for llama');
    return Array(numLayers).fill(undefined);
  }
  if (modelType === 'mistral') {
    const window = given ?? absent;
    const type = window === undefined ? 'full_attention' : 'sliding_attention';
    if (layerTypes?.some((layerType) => layerType !== type)) {
      fields.fail(
        'layer_types',
        `only ${type} (mistral uses sliding_window ${window ?? 'nowhere'} in every layer)`,
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
    const sliding = layerTypes === undefined ? layer >= from : layerTypes[layer] === 'sliding_attention';
    return sliding ? window : undefined;
  });
}

function parseHead(fields: Fields, prefix: string): ModelHead {
  const architectures = fields.strings('architectures') ?? [];
  const supported = Object.values(HEAD_CLASSES).map((name) => `${prefix}For${name}`);
  const [architecture = supported[0], ...others] = architectures;
  const kind = (Object.keys(HEAD_CLASSES) as ModelHead['kind'][]).find(
    (key) => architecture === `${prefix}For${HEAD_CLASSES[key]}`,
  );
  if (kind === undefined || others.length > 0) {
    return fields.fail('architectures', `one of ${supported.join(', ')}`);
  }
  const { labels, numLabels } = parseLabels(fields);
  const dropout = fields.number('classifier_dropout') ?? fields.number('hidden_dropout');
  const bias = fields.boolean('token_classification_bias');
  if (kind === 'causal') return { kind };
  if (kind === 'sequence') return { kind, numLabels, labels };
  return { kind, numLabels, labels, bias: bias ?? true, dropout: dropout ?? 0.1 };
}

function parseLabels(fields: Fields) {
  const count = fields.integer('num_labels', 1, 100_000);
  const names = fields.nested('id2label');
  if (names === undefined) return { numLabels: count ?? 2, labels: undefined };
  const numLabels = Object.keys(names.object).length;
  if (count !== undefined && count !== numLabels)
    fields.fail('num_labels', `as many as id2label has, ${numLabels}`);
  const labels = Array.from({ length: numLabels }, (_, id) => {
    return names.string(String(id)) ?? names.fail(String(id), 'a label for each number from 0 on');
  });
  return { numLabels, labels };
}

function parseDtype(fields: Fields): DtypeName | undefined {
  const [modern, legacy] = [fields.string('dtype'), fields.string('torch_dtype')];
  const key = modern === undefined ? 'torch_dtype' : 'dtype';
  const name = (modern ?? legacy)?.replace(/^torch\./, '');
  if (name !== undefined && !DTYPES.includes(name)) fields.fail(key, `one of ${DTYPES.join(', ')}`);
  return name as DtypeName | undefined;
}

function parseTokenId(fields: Fields, key: string, absent: number | undefined): number | undefined {
  // Older llama files say −1 for "none".
  const id = fields.integer(key, -1);
  if (id !== undefined) return id < 0 ? undefined : id;
  return Object.hasOwn(fields.object, key) ? undefined : absent;
}

function absentEos(fields: Fields, absent: number | undefined): readonly number[] {
  return absent === undefined || Object.hasOwn(fields.object, 'eos_token_id') ? [] : [absent];
}

function eosJson(ids: readonly number[]): JsonValue {
  return ids.length <= 1 ? (ids[0] ?? null) : ids;
}

function defaultLabels(count: number): readonly string[] {
  return Array.from({ length: count }, (_, id) => `LABEL_${id}`);
}

/** Keys in order at every level, as transformers writes them. */
function sortKeys(object: JsonObject): JsonObject {
  return Object.fromEntries(
    Object.keys(object)
      .sort()
      .map((key) => {
        const value = object[key]!;
        return [key, isJsonObject(value) ? sortKeys(value) : value];
      }),
  );
}
