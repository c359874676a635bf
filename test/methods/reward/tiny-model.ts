/** The shape of a model that learns a toy task in seconds. */
export const TINY = {
  model_type: 'qwen2',
  hidden_size: 32,
  intermediate_size: 64,
  num_hidden_layers: 2,
  num_attention_heads: 2,
  num_key_value_heads: 2,
  max_position_embeddings: 256,
  initializer_range: 0.1,
};
