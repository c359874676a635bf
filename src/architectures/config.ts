/**
 * `config.json`, read as transformers 5.18 reads it: the keys that every architecture has, its defaults for absent
 * keys, both spellings of the dtype. Unsupported keys are refused by name (see `config-keys.ts`), never ignored.
 */
import type { Fields } from '../weights/fields.js';
import type { JsonObject, JsonValue } from '../weights/json.js';
import { type HeadKind, headJson, type ModelHead, parseHead } from './heads.js';

export type DtypeName = 'float32' | 'bfloat16' | 'float16';

/** The configuration that every model has. An architecture adds its own keys. */
export interface ModelConfig {
  /** `model_type` of config.json: which row of the table the model belongs to. */
  readonly modelType: string;
  /** Prefix of transformers' class names, such as `Qwen2`. */
  readonly classPrefix: string;
  readonly head: ModelHead;
  /** Width of the tensors between layers. */
  readonly hiddenSize: number;
  /** Width of the hidden states that a head reads: hiddenSize, unless the model projects them. */
  readonly outputSize: number;
  readonly numLayers: number;
  readonly vocabSize: number;
  /** Tokens of the longest sequence. */
  readonly maxPositions: number;
  readonly tieWordEmbeddings: boolean;
  /** Dtype of the stored weights, where the file has it. */
  readonly dtype: DtypeName | undefined;
  readonly bosTokenId: number | undefined;
  readonly eosTokenIds: readonly number[];
  readonly padTokenId: number | undefined;
  /** Standard deviation of new weights. */
  readonly initializerRange: number;
  /** The file as it was read. */
  readonly source: JsonObject;
}

/** Defaults of transformers for absent keys. */
export interface ConfigDefaults {
  readonly maxPositions: number;
  readonly tieWordEmbeddings: boolean;
  readonly bosTokenId: number | undefined;
  readonly eosTokenId: number | undefined;
  readonly padTokenId: number | undefined;
  readonly initializerRange: number;
}

const MAX_LAYERS = 10_000;
const DTYPES: readonly string[] = ['float32', 'bfloat16', 'float16'] satisfies DtypeName[];

/** The keys that every architecture has. `initializerKey`: the key of the standard deviation of new weights. */
export function parseCommon(
  fields: Fields,
  model: { readonly modelType: string; readonly classPrefix: string; readonly heads: readonly HeadKind[] },
  defaults: ConfigDefaults,
  initializerKey = 'initializer_range',
): ModelConfig {
  const { modelType, classPrefix, heads } = model;
  fields.string('model_type');
  const numLayers = fields.requiredInteger('num_hidden_layers', 1, MAX_LAYERS);
  const hiddenSize = fields.requiredInteger('hidden_size');
  return {
    modelType,
    classPrefix,
    head: parseHead(fields, classPrefix, heads),
    hiddenSize,
    outputSize: hiddenSize,
    numLayers,
    vocabSize: fields.requiredInteger('vocab_size'),
    maxPositions: fields.integer('max_position_embeddings', 1) ?? defaults.maxPositions,
    tieWordEmbeddings: fields.boolean('tie_word_embeddings') ?? defaults.tieWordEmbeddings,
    dtype: parseDtype(fields),
    bosTokenId: parseTokenId(fields, 'bos_token_id', defaults.bosTokenId),
    eosTokenIds: fields.integers('eos_token_id') ?? absentEos(fields, defaults.eosTokenId),
    padTokenId: parseTokenId(fields, 'pad_token_id', defaults.padTokenId),
    initializerRange: fields.number(initializerKey) ?? defaults.initializerRange,
    source: fields.object,
  };
}

/** The same keys as JSON over those of the source. Weights are written in floats, whatever it stores them in. */
export function commonJson(config: ModelConfig, initializerKey = 'initializer_range'): JsonObject {
  const { torch_dtype, num_labels, quantization_config, ...source } = config.source;
  return {
    ...source,
    ...headJson(config),
    model_type: config.modelType,
    hidden_size: config.hiddenSize,
    num_hidden_layers: config.numLayers,
    vocab_size: config.vocabSize,
    // The file's value: a scaled rope may read more.
    max_position_embeddings: config.source.max_position_embeddings ?? config.maxPositions,
    tie_word_embeddings: config.tieWordEmbeddings,
    [initializerKey]: config.initializerRange,
    bos_token_id: config.bosTokenId ?? null,
    eos_token_id: eosJson(config.eosTokenIds),
    pad_token_id: config.padTokenId ?? null,
    ...(config.dtype === undefined ? {} : { dtype: config.dtype }),
  };
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

/** Heads of attention that share keys and values. Defaults of Gemma 3 and Qwen3.5: 4 heads of keys, each 256 wide. */
export function parseHeads(
  fields: Fields,
): Readonly<Record<'numHeads' | 'numKeyValueHeads' | 'headDim', number>> {
  const numHeads = fields.requiredInteger('num_attention_heads');
  const numKeyValueHeads = fields.integer('num_key_value_heads', 1) ?? 4;
  if (numHeads % numKeyValueHeads !== 0)
    fields.fail('num_key_value_heads', `a divisor of num_attention_heads (${numHeads})`);
  const headDim = fields.integer('head_dim', 1, 65_536) ?? 256;
  return { numHeads, numKeyValueHeads, headDim };
}
