/** `config.json` of a model that is stored as GGUF, from its metadata. */

import { toF32 } from '../weights/convert.js';
import { isFloatDtype } from '../weights/dtype.js';
import { show, WeightsError } from '../weights/error.js';
import { dequantize } from '../weights/gguf/dequantize.js';
import type { GgufFile } from '../weights/gguf/file.js';
import { type Metadata, metadataOf } from '../weights/gguf/metadata.js';
import type { JsonObject } from '../weights/json.js';

/** By `general.architecture`. llama.cpp stores mistral's models as llama. */
const CLASSES: Readonly<Record<string, string>> = {
  llama: 'Llama',
  qwen2: 'Qwen2',
  qwen3: 'Qwen3',
  qwen3moe: 'Qwen3Moe',
  gemma3: 'Gemma3',
};

/** Where `model_type` has another name. */
const MODEL_TYPES: Readonly<Record<string, string>> = { qwen3moe: 'qwen3_moe' };

/** Of Gemma 3, where metadata does not say: one layer of so many attends to everything, by llama.cpp's own constants. */
const GEMMA = { pattern: 6, localTheta: 10_000, largest: 62 };

/** Llama 3's scalings: the file has the divisors of the frequencies, not what they were computed from. */
const LLAMA3 = [8, 32].map((factor) => ({
  rope_type: 'llama3',
  factor,
  low_freq_factor: 1,
  high_freq_factor: 4,
  original_max_position_embeddings: 8192,
}));

/** @throws WeightsError for an architecture that is not supported, or metadata that is missing or damaged */
export function ggufConfig(file: GgufFile): JsonObject {
  const of = metadataOf(file);
  const { architecture } = of;
  const prefix = Object.hasOwn(CLASSES, architecture) ? CLASSES[architecture] : undefined;
  if (prefix === undefined)
    throw new WeightsError(
      `${file.path}: general.architecture: expected one of ${Object.keys(CLASSES).join(', ')}, found ${show(architecture)}; other models are not supported`,
    );
  const experts = of.integer(of.of('expert_count')) ?? 0;
  if (experts !== 0 && architecture !== 'qwen3moe')
    throw new WeightsError(`${file.path}: ${architecture} models with experts are not supported`);
  const integer = (key: string) => of.required('integer', of.of(key));
  const headDim = of.headDim();
  const rotated = of.integer(of.of('rope.dimension_count')) ?? headDim;
  if (rotated !== headDim) of.fail(of.of('rope.dimension_count'), `${headDim}, the width of a head`);
  const optional = (key: string) => of.integer(of.of(key));
  const window = optional('attention.sliding_window');
  if (window && architecture !== 'gemma3')
    of.fail(of.of('attention.sliding_window'), 'nothing (windows are not read from GGUF)');
  const tokens = of.required('texts', 'tokenizer.ggml.tokens');
  const theta = of.number(of.of('rope.freq_base')) ?? 10_000;
  const scaling = scalingOf(of) ?? llama3Scaling(file, theta, headDim);
  const common = {
    architectures: [`${prefix}ForCausalLM`],
    hidden_size: integer('embedding_length'),
    intermediate_size: integer('feed_forward_length'),
    num_hidden_layers: integer('block_count'),
    num_attention_heads: integer('attention.head_count'),
    num_key_value_heads: optional('attention.head_count_kv') ?? integer('attention.head_count'),
    head_dim: headDim,
    vocab_size: file.tensors.get('token_embd.weight')?.shape[0] ?? tokens.length,
    max_position_embeddings: integer('context_length'),
    rms_norm_eps: shortest(of.required('number', of.of('attention.layer_norm_rms_epsilon'))),
    tie_word_embeddings: !file.tensors.has('output.weight'),
    bos_token_id: of.integer('tokenizer.ggml.bos_token_id') ?? null,
    eos_token_id: endOfText(of),
    pad_token_id: of.integer('tokenizer.ggml.padding_token_id') ?? null,
  };
  const rope = { rope_theta: shortest(theta), ...(scaling ?? { rope_type: 'default' }) };
  if (architecture === 'gemma3') return { ...common, ...gemmaKeys(of, headDim, rope) };
  return {
    ...common,
    ...(architecture === 'qwen3moe' ? expertKeys(of) : {}),
    model_type: MODEL_TYPES[architecture] ?? architecture,
    hidden_act: 'silu',
    ...(architecture === 'qwen2' ? {} : { attention_bias: file.tensors.has('blk.0.attn_q.bias') }),
    ...(architecture === 'llama' ? {} : { use_sliding_window: false }),
    rope_parameters: rope,
  };
}

/** llama.cpp has experts in every layer of these models, and divides the probabilities of a token's experts by their sum. */
function expertKeys(of: Metadata): JsonObject {
  const integer = (name: string) => of.required('integer', of.of(name));
  return {
    num_experts: integer('expert_count'),
    num_experts_per_tok: integer('expert_used_count'),
    moe_intermediate_size: integer('expert_feed_forward_length'),
    norm_topk_prob: true,
  };
}

function gemmaKeys(of: Metadata, headDim: number, rope: JsonObject): JsonObject {
  const key = (name: string) => of.of(name);
  const integer = (name: string) => of.required('integer', key(name));
  // The largest model scales scores by the width of all heads, as llama.cpp knows by its number of layers.
  const isLargest = integer('block_count') === GEMMA.largest;
  const localTheta = of.number(key('rope.freq_base_swa')) ?? GEMMA.localTheta;
  return {
    model_type: 'gemma3_text',
    hidden_activation: 'gelu_pytorch_tanh',
    query_pre_attn_scalar: isLargest
      ? integer('embedding_length') / integer('attention.head_count')
      : headDim,
    sliding_window: integer('attention.sliding_window'),
    sliding_window_pattern: of.integer(key('attention.sliding_window_pattern')) ?? GEMMA.pattern,
    attention_bias: false,
    rope_parameters: {
      full_attention: rope,
      sliding_attention: { rope_type: 'default', rope_theta: shortest(localTheta) },
    },
  };
}

/** The end of text, and of a turn where that is another token. */
function endOfText(of: Metadata): number | number[] | null {
  const ids = ['eos', 'eot', 'eom'].flatMap((name) => of.integer(`tokenizer.ggml.${name}_token_id`) ?? []);
  const unique = [...new Set(ids)];
  return unique.length > 1 ? unique : (unique[0] ?? null);
}

/** The scaling that metadata names. */
function scalingOf(of: Metadata): JsonObject | undefined {
  const key = (name: string) => of.of(`rope.scaling.${name}`);
  const type = of.text(key('type')) ?? 'none';
  if (type === 'none') return undefined;
  const factor = of.required('number', key('factor'));
  if (type === 'linear') return { rope_type: 'linear', factor };
  if (type !== 'yarn') return of.fail(key('type'), 'none, linear or yarn');
  const original = of.integer(key('original_context_length'));
  return {
    rope_type: 'yarn',
    factor,
    ...(original === undefined ? {} : { original_max_position_embeddings: original }),
  };
}

/**
 * The scaling whose divisors `rope_freqs.weight` holds: of the published ones, that which gives them.
 *
 * @throws WeightsError where none does
 */
function llama3Scaling(file: GgufFile, theta: number, headDim: number): JsonObject | undefined {
  const tensor = file.tensors.get('rope_freqs.weight');
  if (tensor === undefined) return undefined;
  const bytes = file.read(tensor.name);
  const stored = isFloatDtype(tensor.type.name)
    ? toF32(bytes, tensor.type.name)
    : dequantize(bytes, tensor.type);
  for (const scaling of LLAMA3) {
    const wanted = llama3Divisors(scaling, theta, headDim);
    const same = (value: number, i: number) => Math.abs(value - (stored[i] ?? Number.NaN)) < 1e-4 * value;
    if (wanted.length === stored.length && wanted.every(same)) return scaling;
  }
  throw new WeightsError(
    `${file.path}: rope_freqs.weight holds a scaling of positions that is none of Llama 3's (factor ${LLAMA3.map(({ factor }) => factor).join(' or ')}); take the model's safetensors`,
  );
}

/** By what Llama 3's scaling divides each frequency. */
export function llama3Divisors(
  scaling: Readonly<
    Record<'factor' | 'low_freq_factor' | 'high_freq_factor' | 'original_max_position_embeddings', number>
  >,
  theta: number,
  headDim: number,
): number[] {
  const { factor, low_freq_factor: low, high_freq_factor: high } = scaling;
  const original = scaling.original_max_position_embeddings;
  return Array.from({ length: headDim / 2 }, (_, i) => {
    const wavelength = 2 * Math.PI * theta ** ((2 * i) / headDim);
    if (wavelength < original / high) return 1;
    if (wavelength > original / low) return factor;
    const smooth = (original / wavelength - low) / (high - low);
    return 1 / ((1 - smooth) / factor + smooth);
  });
}

/** The decimal that a single was written from: 1e-5, not 9.99999974e-6. */
const shortest = (value: number) => Number(value.toPrecision(7));
