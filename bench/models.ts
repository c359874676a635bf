/** `config.json` of Qwen2.5-0.5B, as far as shape and maths go. */
export const QWEN_0_5B = {
  architectures: ['Qwen2ForCausalLM'],
  attention_dropout: 0,
  hidden_act: 'silu',
  hidden_size: 896,
  initializer_range: 0.02,
  intermediate_size: 4864,
  max_position_embeddings: 32768,
  max_window_layers: 21,
  model_type: 'qwen2',
  num_attention_heads: 14,
  num_hidden_layers: 24,
  num_key_value_heads: 2,
  rms_norm_eps: 1e-6,
  rope_theta: 1_000_000,
  sliding_window: null,
  tie_word_embeddings: true,
  use_cache: true,
  use_sliding_window: false,
  vocab_size: 151_936,
} as const;

/** `config.json` of Qwen2.5-1.5B, likewise. */
export const QWEN_1_5B = {
  ...QWEN_0_5B,
  hidden_size: 1536,
  intermediate_size: 8960,
  max_window_layers: 21,
  num_attention_heads: 12,
  num_hidden_layers: 28,
} as const;

/** `config.json` of Qwen2.5-7B, likewise. */
export const QWEN_7B = {
  ...QWEN_0_5B,
  hidden_size: 3584,
  intermediate_size: 18_944,
  max_window_layers: 28,
  num_attention_heads: 28,
  num_hidden_layers: 28,
  num_key_value_heads: 4,
  tie_word_embeddings: false,
  vocab_size: 152_064,
} as const;

/** `config.json` of the text model of Qwen3.5-0.8B, likewise: three of four layers go by the gated delta rule. */
export const QWEN3_5_0_8B = {
  architectures: ['Qwen3_5ForCausalLM'],
  attention_bias: false,
  attention_dropout: 0,
  head_dim: 256,
  hidden_act: 'silu',
  hidden_size: 1024,
  initializer_range: 0.02,
  intermediate_size: 3584,
  layer_types: Array.from({ length: 24 }, (_, i) => (i % 4 === 3 ? 'full_attention' : 'linear_attention')),
  linear_conv_kernel_dim: 4,
  linear_key_head_dim: 128,
  linear_num_key_heads: 16,
  linear_num_value_heads: 16,
  linear_value_head_dim: 128,
  max_position_embeddings: 262_144,
  model_type: 'qwen3_5_text',
  num_attention_heads: 8,
  num_hidden_layers: 24,
  num_key_value_heads: 2,
  rms_norm_eps: 1e-6,
  rope_parameters: { partial_rotary_factor: 0.25, rope_theta: 10_000_000, rope_type: 'default' },
  tie_word_embeddings: true,
  use_cache: true,
  vocab_size: 248_320,
} as const;

/** `config.json` of SmolLM2-135M, likewise. */
export const SMOLLM2_135M = {
  architectures: ['LlamaForCausalLM'],
  attention_bias: false,
  hidden_act: 'silu',
  hidden_size: 576,
  intermediate_size: 1536,
  max_position_embeddings: 8192,
  mlp_bias: false,
  model_type: 'llama',
  num_attention_heads: 9,
  num_hidden_layers: 30,
  num_key_value_heads: 3,
  rms_norm_eps: 1e-5,
  rope_theta: 100_000,
  tie_word_embeddings: true,
  vocab_size: 49_152,
} as const;

/** `config.json` of deberta-v3-xsmall as a token classifier, as far as shape and maths go. */
export const DEBERTA_V3_XSMALL = {
  architectures: ['DebertaV2ForTokenClassification'],
  attention_probs_dropout_prob: 0,
  hidden_act: 'gelu',
  hidden_dropout_prob: 0,
  hidden_size: 384,
  intermediate_size: 1536,
  layer_norm_eps: 1e-7,
  max_position_embeddings: 512,
  model_type: 'deberta-v2',
  norm_rel_ebd: 'layer_norm',
  num_attention_heads: 6,
  num_hidden_layers: 12,
  pos_att_type: ['p2c', 'c2p'],
  position_biased_input: false,
  position_buckets: 256,
  relative_attention: true,
  share_att_key: true,
  type_vocab_size: 0,
  vocab_size: 128_100,
} as const;

/** `config.json` of deberta-v3-base, likewise. */
export const DEBERTA_V3_BASE = {
  ...DEBERTA_V3_XSMALL,
  hidden_size: 768,
  intermediate_size: 3072,
  num_attention_heads: 12,
} as const;

/** A model of about 12M parameters, for what is to be timed in seconds. */
export const SMALL = {
  ...QWEN_0_5B,
  hidden_size: 256,
  intermediate_size: 1024,
  max_position_embeddings: 2048,
  max_window_layers: 8,
  num_attention_heads: 8,
  num_hidden_layers: 8,
  num_key_value_heads: 4,
  vocab_size: 8192,
} as const;
