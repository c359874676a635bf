/** The `model.init` of a new decoder as in `llama.ts`: its keys, and which of them contradict each other. */
import { z } from 'zod';
import type { JsonObject } from '../weights/json.js';
import { type InitConflict, NEW_MODEL, type NewModel } from './architecture.js';
import { TYPES } from './llama-config.js';

export const llamaInit = z.strictObject({
  model_type: z.enum(Object.keys(TYPES)).default('qwen2').describe('Architecture, as config.json names it.'),
  ...NEW_MODEL,
  intermediate_size: z.int().min(1).describe('Width inside the MLP; about 2.7 × hidden_size for gated MLPs.'),
  num_key_value_heads: z
    .int()
    .min(1)
    .optional()
    .describe('Number of key/value heads; fewer than query heads shrinks the KV cache. Default: as many.'),
  head_dim: z
    .int()
    .min(1)
    .optional()
    .describe('Width of a head. Default: hidden_size / num_attention_heads.'),
  rope_theta: z.number().positive().default(10000).describe('Base of the rotary frequencies.'),
  rms_norm_eps: z.number().positive().default(1e-6).describe('Epsilon inside the norms.'),
  sliding_window: z
    .int()
    .min(1)
    .optional()
    .describe('Attention window in tokens, of mistral alone. Default: none.'),
  num_experts: z.int().min(1).optional().describe('Experts of each layer, of qwen3_moe alone.'),
  num_experts_per_tok: z
    .int()
    .min(1)
    .optional()
    .describe('Experts that read a token. Default 2, or 1 where there is one.'),
  moe_intermediate_size: z
    .int()
    .min(1)
    .optional()
    .describe('Width inside an expert. Default: intermediate_size / num_experts_per_tok, rounded up.'),
  norm_topk_prob: z
    .boolean()
    .optional()
    .describe("Divide the probabilities of a token's experts by their sum. Default true."),
  initializer_range: z
    .number()
    .positive()
    .default(0.02)
    .describe('Standard deviation of the random weights; small models learn faster with 0.05.'),
});

type Init = z.output<typeof llamaInit>;

/** Defaults of absent keys. */
export function llamaDefaults(init: NewModel): JsonObject {
  const { num_key_value_heads, num_attention_heads, num_experts: experts } = init as Init;
  const common = {
    num_key_value_heads: num_key_value_heads ?? num_attention_heads,
    hidden_act: 'silu',
  };
  if (experts === undefined) return common;
  const {
    num_experts_per_tok = Math.min(2, experts),
    intermediate_size,
    norm_topk_prob = true,
  } = init as Init;
  const { moe_intermediate_size = Math.ceil(intermediate_size / num_experts_per_tok) } = init as Init;
  return { ...common, num_experts_per_tok, moe_intermediate_size, norm_topk_prob };
}

export function llamaConflicts(init: NewModel): readonly InitConflict[] {
  const { model_type, hidden_size, num_attention_heads, num_key_value_heads, head_dim, sliding_window } =
    init as Init;
  const keyValueHeads = num_key_value_heads ?? num_attention_heads;
  const conflicts: InitConflict[] = [];
  if (head_dim === undefined && hidden_size % num_attention_heads !== 0) {
    conflicts.push({
      key: 'num_attention_heads',
      message: `hidden_size (${hidden_size}) must be a multiple of num_attention_heads (${num_attention_heads}), or set head_dim`,
    });
  }
  if (num_attention_heads % keyValueHeads !== 0) {
    conflicts.push({
      key: 'num_key_value_heads',
      message: `num_attention_heads (${num_attention_heads}) must be a multiple of num_key_value_heads (${keyValueHeads})`,
    });
  }
  if (sliding_window !== undefined && model_type !== 'mistral') {
    conflicts.push({
      key: 'sliding_window',
      message: `sliding_window is for model_type "mistral", found ${JSON.stringify(model_type)}`,
    });
  }
  return [...conflicts, ...expertConflicts(init as Init)];
}

const EXPERT_KEYS = [
  'num_experts',
  'num_experts_per_tok',
  'moe_intermediate_size',
  'norm_topk_prob',
] as const satisfies readonly (keyof Init)[];

function expertConflicts(init: Init): readonly InitConflict[] {
  const { model_type, num_experts: count, num_experts_per_tok: each } = init;
  if (model_type !== 'qwen3_moe')
    return EXPERT_KEYS.filter((key) => init[key] !== undefined).map((key) => ({
      key,
      message: `${key} is for model_type "qwen3_moe", found ${JSON.stringify(model_type)}`,
    }));
  if (count === undefined)
    return [{ key: 'num_experts', message: 'model_type "qwen3_moe" needs num_experts' }];
  if (each === undefined || each <= count) return [];
  const message = `num_experts_per_tok (${each}) must be at most num_experts (${count})`;
  return [{ key: 'num_experts_per_tok', message }];
}
