/** The `model.init` of a new Qwen3.5: its keys, and which of them contradict each other. */
import { z } from 'zod';
import type { JsonObject } from '../weights/json.js';
import { type InitConflict, NEW_MODEL, type NewModel } from './architecture.js';

export const qwen35Init = z.strictObject({
  model_type: z.enum(['qwen3_5_text']).describe('Architecture, as config.json names it.'),
  ...NEW_MODEL,
  intermediate_size: z.int().min(1).describe('Width inside the MLP; about 2.7 × hidden_size for gated MLPs.'),
  num_key_value_heads: z.int().min(1).describe('Number of key/value heads of layers that attend.'),
  head_dim: z.int().min(1).describe('Width of a head of layers that attend; a quarter of it turns.'),
  full_attention_interval: z.int().min(1).default(4).describe('One layer of so many attends.'),
  linear_num_key_heads: z.int().min(1).describe('Number of query and key heads of the other layers.'),
  linear_num_value_heads: z.int().min(1).describe('Number of their value heads, a multiple of it.'),
  linear_key_head_dim: z.int().min(1).describe('Width of their query and key heads.'),
  linear_value_head_dim: z.int().min(1).describe('Width of their value heads.'),
  initializer_range: z
    .number()
    .positive()
    .default(0.02)
    .describe('Standard deviation of the random weights; small models learn faster with 0.05.'),
});

const { intermediate_size: _, ...shared } = qwen35Init.shape;

export const qwen35MoeInit = z.strictObject({
  ...shared,
  model_type: z.enum(['qwen3_5_moe_text']).describe('Architecture, as config.json names it.'),
  num_experts: z.int().min(1).describe('Experts of each layer.'),
  num_experts_per_tok: z.int().min(1).describe('Experts that read a token, beside one that reads all.'),
  moe_intermediate_size: z.int().min(1).describe('Width inside an expert.'),
});

type Init = z.output<typeof qwen35Init>;

export const qwen35Defaults = (_: NewModel): JsonObject => ({ hidden_act: 'silu' });

export function qwen35MoeDefaults(init: NewModel): JsonObject {
  const { moe_intermediate_size } = init as z.output<typeof qwen35MoeInit>;
  return { ...qwen35Defaults(init), shared_expert_intermediate_size: moe_intermediate_size };
}

export function qwen35Conflicts(init: NewModel): readonly InitConflict[] {
  const { num_attention_heads, num_key_value_heads, linear_num_key_heads, linear_num_value_heads, head_dim } =
    init as Init;
  const conflicts: InitConflict[] = [];
  const refuse = (key: string, message: string) => conflicts.push({ key, message });
  if (num_attention_heads % num_key_value_heads !== 0)
    refuse(
      'num_attention_heads',
      `num_attention_heads (${num_attention_heads}) must be a multiple of num_key_value_heads (${num_key_value_heads})`,
    );
  if (linear_num_value_heads % linear_num_key_heads !== 0)
    refuse(
      'linear_num_value_heads',
      `linear_num_value_heads (${linear_num_value_heads}) must be a multiple of linear_num_key_heads (${linear_num_key_heads})`,
    );
  if (head_dim % 8 !== 0)
    refuse('head_dim', `head_dim (${head_dim}) must be a multiple of 8, since a quarter of it turns`);
  return conflicts;
}
