// Directories with a random Qwen3.5 whose three value heads share a key head, so that llama.cpp keeps them in another order.
import { cpSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { modelWeights, parseModelConfig } from '../../dist/architectures/table.js';
import { cuttingOf } from '../../dist/tokenizer/gguf-cutting.js';
import { writeCheckpoint } from '../../dist/weights/checkpoint-writer.js';

const TOKENIZER = fileURLToPath(new URL('../../assets/arithmetic-base', import.meta.url));
const CONFIG = {
  architectures: ['Qwen3_5ForCausalLM'],
  model_type: 'qwen3_5_text',
  hidden_act: 'silu',
  hidden_size: 256,
  intermediate_size: 512,
  num_hidden_layers: 8,
  num_attention_heads: 4,
  num_key_value_heads: 2,
  head_dim: 64,
  vocab_size: 320,
  max_position_embeddings: 2048,
  rms_norm_eps: 1e-6,
  initializer_range: 0.1,
  tie_word_embeddings: false,
  full_attention_interval: 4,
  linear_num_key_heads: 2,
  linear_num_value_heads: 6,
  linear_key_head_dim: 128,
  linear_value_head_dim: 128,
  linear_conv_kernel_dim: 4,
  rope_parameters: { rope_type: 'default', rope_theta: 10_000_000, partial_rotary_factor: 0.25 },
  eos_token_id: 319,
};

function draws(seed) {
  let state = seed;
  const uniform = () => {
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    return (state >>> 0) / 2 ** 32;
  };
  const normal = () => Math.sqrt(-2 * Math.log(uniform() + 1e-12)) * Math.cos(2 * Math.PI * uniform());
  return { uniform, normal };
}

/** How a value of each kind of weight is drawn: large enough that every part changes what is written. */
const KINDS = [
  [/A_log$/, ({ uniform }) => Math.log(1 + 15 * uniform())],
  [/dt_bias$/, ({ normal }) => normal() - 2],
  [/linear_attn\.norm/, ({ normal }) => 1 + 0.3 * normal()],
  [/norm/, ({ normal }) => 0.3 * normal()],
  [/conv1d|embed|lm_head/, ({ normal }) => 0.5 * normal()],
];

const { intermediate_size: _, ...SHARED } = CONFIG;
const WITH_EXPERTS = {
  ...SHARED,
  architectures: ['Qwen3_5MoeForCausalLM'],
  model_type: 'qwen3_5_moe_text',
  num_experts: 6,
  num_experts_per_tok: 2,
  moe_intermediate_size: 128,
  shared_expert_intermediate_size: 160,
};

/** @param experts in place of the MLPs, with one more that reads every token */
export async function writeQwen35(directory, { experts = false } = {}) {
  const from = draws(12345);
  const config = experts ? WITH_EXPERTS : CONFIG;
  const weights = modelWeights(parseModelConfig(config, 'random')).map(({ name, shape }) => {
    const draw =
      KINDS.find(([kind]) => kind.test(name))?.[1] ?? (({ normal }) => normal() / Math.sqrt(shape[1]));
    const values = Float32Array.from({ length: shape.reduce((a, b) => a * b, 1) }, () => draw(from));
    return { name, shape, dtype: 'F32', data: () => new Uint8Array(values.buffer) };
  });
  await writeCheckpoint(directory, weights, { config });
  const tokenizer = JSON.parse(readFileSync(join(TOKENIZER, 'tokenizer.json'), 'utf8'));
  tokenizer.pre_tokenizer = cuttingOf('qwen35');
  tokenizer.normalizer = { type: 'NFC' };
  writeFileSync(join(directory, 'tokenizer.json'), JSON.stringify(tokenizer));
  cpSync(join(TOKENIZER, 'tokenizer_config.json'), join(directory, 'tokenizer_config.json'));
}
