/** Tensors of GGUF files under the names that checkpoints of transformers have. */

/** ggml's names of a layer's tensors, without `blk.N.`. */
const SHARED: Readonly<Record<string, string>> = {
  attn_norm: 'input_layernorm',
  attn_q: 'self_attn.q_proj',
  attn_k: 'self_attn.k_proj',
  attn_v: 'self_attn.v_proj',
  attn_output: 'self_attn.o_proj',
  attn_q_norm: 'self_attn.q_norm',
  attn_k_norm: 'self_attn.k_norm',
  ffn_gate: 'mlp.gate_proj',
  ffn_up: 'mlp.up_proj',
  ffn_down: 'mlp.down_proj',
};

const LAYER: Readonly<Record<string, string>> = { ...SHARED, ffn_norm: 'post_attention_layernorm' };

/** Names in mixtures of experts: `_exps` are joint tensors of the experts' modules, see `ExpertPlace`. */
const EXPERTS: Readonly<Record<string, string>> = {
  ffn_gate_inp: 'mlp.gate',
  ffn_gate_exps: 'mlp.experts.gate_proj',
  ffn_up_exps: 'mlp.experts.up_proj',
  ffn_down_exps: 'mlp.experts.down_proj',
};

/** Gemma 3's, whose layers have four norms: `ffn_norm` is the one before the MLP. */
const GEMMA: Readonly<Record<string, string>> = {
  ...SHARED,
  ffn_norm: 'pre_feedforward_layernorm',
  post_attention_norm: 'post_attention_layernorm',
  post_ffw_norm: 'post_feedforward_layernorm',
};

/** Qwen3.5's, of both kinds of layers. */
const DELTA: Readonly<Record<string, string>> = {
  ...SHARED,
  attn_qkv: 'linear_attn.in_proj_qkv',
  attn_gate: 'linear_attn.in_proj_z',
  ssm_alpha: 'linear_attn.in_proj_a',
  ssm_beta: 'linear_attn.in_proj_b',
  ssm_conv1d: 'linear_attn.conv1d',
  ssm_norm: 'linear_attn.norm',
  ssm_out: 'linear_attn.out_proj',
  post_attention_norm: 'post_attention_layernorm',
};

/** Those of Qwen3.5 with experts, of which one reads every token. Some files have gates and ups in one tensor. */
const DELTA_EXPERTS: Readonly<Record<string, string>> = {
  ...DELTA,
  ...EXPERTS,
  ffn_gate_up_exps: 'mlp.experts.gate_up_proj',
  ffn_gate_inp_shexp: 'mlp.shared_expert_gate',
  ffn_gate_shexp: 'mlp.shared_expert.gate_proj',
  ffn_up_shexp: 'mlp.shared_expert.up_proj',
  ffn_down_shexp: 'mlp.shared_expert.down_proj',
};

/** Names of layers that a checkpoint has without `.weight` or `.bias`. */
const BARE: Readonly<Record<string, string>> = {
  ssm_a: 'linear_attn.A_log',
  'ssm_dt.bias': 'linear_attn.dt_bias',
};

const OTHERS: Readonly<Record<string, Readonly<Record<string, string>>>> = {
  gemma3: GEMMA,
  qwen3moe: { ...LAYER, ...EXPERTS },
  qwen35: DELTA,
  qwen35moe: DELTA_EXPERTS,
};

/** Whether layers of the architecture go by the gated delta rule. */
export const hasDelta = (architecture: string) => architecture === 'qwen35' || architecture === 'qwen35moe';

const layerNames = (architecture: string) =>
  (Object.hasOwn(OTHERS, architecture) ? OTHERS[architecture] : undefined) ?? LAYER;

const OUTER: Readonly<Record<string, string>> = {
  token_embd: 'model.embed_tokens',
  output_norm: 'model.norm',
  output: 'lm_head',
};

/** The name in a checkpoint, or undefined for a tensor that none has. */
export function checkpointName(architecture: string, name: string): string | undefined {
  const [, block, own = ''] = /^blk\.(\d+)\.(.+)$/.exec(name) ?? [];
  if (hasDelta(architecture) && Object.hasOwn(BARE, own)) return `model.layers.${block}.${BARE[own]}`;
  const [, layer, module, kind] = /^(?:blk\.(\d+)\.)?(\w+)\.(weight|bias)$/.exec(name) ?? [];
  if (module === undefined) return undefined;
  if (layer === undefined) return Object.hasOwn(OUTER, module) ? `${OUTER[module]}.${kind}` : undefined;
  const names = layerNames(architecture);
  return Object.hasOwn(names, module) ? `model.layers.${layer}.${names[module]}.${kind}` : undefined;
}

/** The name in a GGUF file, or undefined for a weight that none has. */
export function ggufName(architecture: string, name: string): string | undefined {
  const [, block, own] = /^model\.layers\.(\d+)\.(.+)$/.exec(name) ?? [];
  const [bare] = Object.entries(BARE).find(([, to]) => to === own) ?? [];
  if (bare !== undefined) return `blk.${block}.${bare}`;
  const [, layer, module, kind] = /^(?:model\.layers\.(\d+)\.)?([\w.]+)\.(weight|bias)$/.exec(name) ?? [];
  const names = layer === undefined ? OUTER : layerNames(architecture);
  const [found] = Object.entries(names).find(([, to]) => to === module) ?? [];
  if (found === undefined) return undefined;
  return `${layer === undefined ? '' : `blk.${layer}.`}${found}.${kind}`;
}

/** The name in a checkpoint of one expert's weight in a joint one; undefined for a weight that is not joint. */
export function expertName(joint: string, index: number): string | undefined {
  return /\.experts\.\w+\.weight$/.test(joint) ? joint.replace('.experts.', `.experts.${index}.`) : undefined;
}
