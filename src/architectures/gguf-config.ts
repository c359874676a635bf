/** `config.json` of a model that is stored as GGUF, from its metadata. */

import { show, WeightsError } from '../weights/error.js';
import type { GgufFile } from '../weights/gguf/file.js';
import { type Metadata, metadataOf } from '../weights/gguf/metadata.js';
import { hasDelta } from '../weights/gguf/names.js';
import type { JsonObject } from '../weights/json.js';
import { ggufScaling, shortest } from './gguf-rope.js';

/** Class prefixes by `general.architecture`. llama.cpp stores mistral's models as llama. */
const CLASSES: Readonly<Record<string, string>> = {
  llama: 'Llama',
  qwen2: 'Qwen2',
  qwen3: 'Qwen3',
  qwen3moe: 'Qwen3Moe',
  gemma3: 'Gemma3',
  qwen35: 'Qwen3_5',
  qwen35moe: 'Qwen3_5Moe',
};

/** `model_type` of architectures with another name there. */
const MODEL_TYPES: Readonly<Record<string, string>> = {
  qwen3moe: 'qwen3_moe',
  qwen35: 'qwen3_5_text',
  qwen35moe: 'qwen3_5_moe_text',
};

const WITH_EXPERTS = ['qwen3moe', 'qwen35moe'];

/** Keys of an architecture without influence on the model. */
const NEUTRAL = [
  ...['vocab_size', 'rope.scaling.finetuned', 'tensor_data_layout', 'pooling_type'],
  // Only with experts does it count.
  'expert_used_count',
];

/** Gemma 3's constants in llama.cpp, for metadata without them: one layer in `pattern` attends to everything. */
const GEMMA = { pattern: 6, localTheta: 10_000, largest: 62 };

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
  if (experts !== 0 && !WITH_EXPERTS.includes(architecture))
    throw new WeightsError(`${file.path}: ${architecture} models with experts are not supported`);
  const integer = (key: string) => of.required('integer', of.of(key));
  const headDim = of.headDim();
  const rotated = of.integer(of.of('rope.dimension_count')) ?? headDim;
  if (rotated !== headDim && !hasDelta(architecture))
    of.fail(of.of('rope.dimension_count'), `${headDim}, the width of a head`);
  const optional = (key: string) => of.integer(of.of(key));
  const window = optional('attention.sliding_window');
  if (window && architecture !== 'gemma3')
    of.fail(of.of('attention.sliding_window'), 'nothing (windows are not read from GGUF)');
  const tokens = of.required('texts', 'tokenizer.ggml.tokens');
  for (const key of NEUTRAL) of.seen(of.of(key));
  if ((of.integer(of.of('attention.value_length')) ?? headDim) !== headDim)
    of.fail(of.of('attention.value_length'), `${headDim}, the width of a head`);
  const theta = of.number(of.of('rope.freq_base')) ?? 10_000;
  const scaling = ggufScaling(file, of, theta, rotated);
  const common = {
    architectures: [`${prefix}ForCausalLM`],
    hidden_size: integer('embedding_length'),
    // No layer of these has an MLP.
    ...(architecture === 'qwen35moe' ? {} : { intermediate_size: integer('feed_forward_length') }),
    num_hidden_layers: hasDelta(architecture) ? of.layers() : integer('block_count'),
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
  const config =
    architecture === 'gemma3'
      ? gemmaKeys(of, headDim, rope)
      : hasDelta(architecture)
        ? deltaKeys(file, of, { ...rope, partial_rotary_factor: rotated / headDim })
        : llamaKeys(file, of, rope);
  of.refuseUnread();
  return { ...common, ...config };
}

function llamaKeys(file: GgufFile, of: Metadata, rope: JsonObject): JsonObject {
  const { architecture } = of;
  return {
    ...(architecture === 'qwen3moe' ? { ...expertKeys(of), norm_topk_prob: true } : {}),
    model_type: MODEL_TYPES[architecture] ?? architecture,
    hidden_act: 'silu',
    ...(architecture === 'qwen2' ? {} : { attention_bias: file.tensors.has('blk.0.attn_q.bias') }),
    ...(architecture === 'llama' ? {} : { use_sliding_window: false }),
    rope_parameters: rope,
  };
}

/** Qwen3.5: which layers attend, and the heads of the others. The sections by which images turn are all the same for text. */
function deltaKeys(file: GgufFile, of: Metadata, rope: JsonObject): JsonObject {
  const { keyHeads, heads, keySize, valueSize } = of.delta();
  of.seen(of.of('rope.dimension_sections'));
  const interval = of.integer(of.of('full_attention_interval')) ?? 4;
  const recurrent = of.flags(of.of('attention.recurrent_layers'));
  const layers = of.layers();
  if (recurrent && recurrent.length < layers)
    of.fail(of.of('attention.recurrent_layers'), `true or false for each of the ${layers} layers`);
  return {
    ...(of.architecture === 'qwen35moe' ? sharedExpertKeys(of) : {}),
    model_type: MODEL_TYPES[of.architecture] as string,
    hidden_act: 'silu',
    attention_bias: [...file.tensors.keys()].some((name) => name.endsWith('.attn_q.bias')),
    layer_types: Array.from({ length: layers }, (_, layer) =>
      (recurrent?.[layer] ?? (layer + 1) % interval !== 0) ? 'linear_attention' : 'full_attention',
    ),
    linear_num_key_heads: keyHeads,
    linear_num_value_heads: heads,
    linear_key_head_dim: keySize,
    linear_value_head_dim: valueSize,
    linear_conv_kernel_dim: of.required('integer', of.of('ssm.conv_kernel')),
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
  };
}

/** The same with one more expert, which reads every token. The width of an MLP, which no layer has, may stand there. */
function sharedExpertKeys(of: Metadata): JsonObject {
  of.seen(of.of('feed_forward_length'));
  const shared = of.required('integer', of.of('expert_shared_feed_forward_length'));
  return { ...expertKeys(of), shared_expert_intermediate_size: shared };
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
