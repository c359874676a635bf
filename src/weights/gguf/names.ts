/** Tensors of GGUF files under the names that checkpoints of transformers have. */

/** ggml's names of a layer's tensors, without `blk.N.`. */
const LAYER: Readonly<Record<string, string>> = {
  attn_norm: 'input_layernorm',
  attn_q: 'self_attn.q_proj',
  attn_k: 'self_attn.k_proj',
  attn_v: 'self_attn.v_proj',
  attn_output: 'self_attn.o_proj',
  attn_q_norm: 'self_attn.q_norm',
  attn_k_norm: 'self_attn.k_norm',
  ffn_norm: 'post_attention_layernorm',
  ffn_gate: 'mlp.gate_proj',
  ffn_up: 'mlp.up_proj',
  ffn_down: 'mlp.down_proj',
};

/** Names in mixtures of experts: `_exps` are joint tensors of the experts' modules, see `ExpertPlace`. */
const EXPERTS: Readonly<Record<string, string>> = {
  ...LAYER,
  ffn_gate_inp: 'mlp.gate',
  ffn_gate_exps: 'mlp.experts.gate_proj',
  ffn_up_exps: 'mlp.experts.up_proj',
  ffn_down_exps: 'mlp.experts.down_proj',
};

/** Gemma 3's, whose layers have four norms: `ffn_norm` is the one before the MLP. */
const GEMMA: Readonly<Record<string, string>> = {
  ...LAYER,
  ffn_norm: 'pre_feedforward_layernorm',
  post_attention_norm: 'post_attention_layernorm',
  post_ffw_norm: 'post_feedforward_layernorm',
};

const OTHERS: Readonly<Record<string, Readonly<Record<string, string>>>> = {
  gemma3: GEMMA,
  qwen3moe: EXPERTS,
};

const layerNames = (architecture: string) =>
  (Object.hasOwn(OTHERS, architecture) ? OTHERS[architecture] : undefined) ?? LAYER;

const OUTER: Readonly<Record<string, string>> = {
  token_embd: 'model.embed_tokens',
  output_norm: 'model.norm',
  output: 'lm_head',
};

/** The name in a checkpoint, or undefined for a tensor that none has. */
export function checkpointName(architecture: string, name: string): string | undefined {
  const [, layer, module, kind] = /^(?:blk\.(\d+)\.)?(\w+)\.(weight|bias)$/.exec(name) ?? [];
  if (module === undefined) return undefined;
  if (layer === undefined) return Object.hasOwn(OUTER, module) ? `${OUTER[module]}.${kind}` : undefined;
  const names = layerNames(architecture);
  return Object.hasOwn(names, module) ? `model.layers.${layer}.${names[module]}.${kind}` : undefined;
}

/** The name in a GGUF file, or undefined for a weight that none has. */
export function ggufName(architecture: string, name: string): string | undefined {
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

/**
 * Whether llama.cpp keeps the rows of this tensor in another order. For `llama` (mistral too) it rotates neighbours,
 * where transformers rotates a head's halves. Row `h·d + 2i + j` of the file is row `h·d + j·d/2 + i` of the
 * checkpoint.
 */
export function hasPairedRows(architecture: string, name: string): boolean {
  return architecture === 'llama' && /\.attn_[qk]\.(weight|bias)$/.test(name);
}

/**
 * The offset that llama.cpp has added to the values of this tensor: for Gemma the 1 that checkpoints leave to the
 * forward.
 */
export function storedOffset(architecture: string, name: string): number {
  return architecture === 'gemma3' && /_norm\.weight$/.test(name) ? 1 : 0;
}

/**
 * Moves the rows of heads of `headDim`, `rowBytes` each, from the order of the file to that of the checkpoint, or back.
 */
export function movedRows(
  rows: Uint8Array<ArrayBuffer>,
  rowBytes: number,
  headDim: number,
  to: 'checkpoint' | 'file',
): Uint8Array<ArrayBuffer> {
  const out = new Uint8Array(rows.length);
  for (let head = 0; head < rows.length / rowBytes; head += headDim)
    for (let i = 0; i < headDim / 2; i++)
      for (let j = 0; j < 2; j++) {
        const [paired, apart] = [head + 2 * i + j, head + (j * headDim) / 2 + i];
        const [from, at] = to === 'checkpoint' ? [paired, apart] : [apart, paired];
        out.set(rows.subarray(from * rowBytes, (from + 1) * rowBytes), at * rowBytes);
      }
  return out;
}
