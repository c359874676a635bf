/**
 * Pre-norm decoders with RMSNorm, rotary positions, grouped key/value heads and SwiGLU: llama, mistral, qwen2, qwen3, smollm3, whose
 * every fourth layer has no positions, and qwen3_moe, whose MLPs are mixtures of experts (`experts.ts`).
 *
 *     a = RMSNorm(x);  x += o(attend(rope(norm(q(a))), rope(norm(k(a))), v(a)))      norm: qwen3 and qwen3_moe
 *     m = RMSNorm(x);  x += down(silu(gate(m)) · up(m))
 */
import { embedding } from '../ops/embedding.js';
import { linearQkv, linearSwiglu } from '../ops/gemm.js';
import { addRmsNorm, type Norm, rmsNorm } from '../ops/norm.js';
import type { Tensor } from '../runtime/tensor.js';
import { type ModuleSpec, moduleSpec } from '../weights/modules.js';
import type { Architecture, Forward, LayerMemory, Stream } from './architecture.js';
import { expertModules, expertsMemory, mixture } from './experts.js';
import { embeddingModule, headModules } from './head-modules.js';
import {
  type GatedConfig,
  type LlamaConfig,
  type LlamaType,
  llamaJson,
  parseLlama,
  TYPES,
} from './llama-config.js';
import { llamaConflicts, llamaDefaults, llamaInit } from './llama-new.js';
import { ropeTable } from './rope.js';

const EMBEDDING = 'model.embed_tokens';
const FINAL_NORM = 'model.norm';

export const llama: Architecture<LlamaConfig> = {
  modelTypes: Object.keys(TYPES),

  init: llamaInit,
  initConflicts: llamaConflicts,
  initDefaults: llamaDefaults,

  parse: (fields, modelType) => parseLlama(fields, modelType as LlamaType),
  json: llamaJson,
  modules,
  computed: /\.rotary_emb\.inv_freq$/,

  memory,
  keyValues,

  constants({ rope: settings, headDim }, positions) {
    const { cos, sin } = ropeTable(settings, positions);
    const shape = [positions, headDim / 2];
    return { cos: { values: cos, shape }, sin: { values: sin, shape } };
  },

  embed: ({ ids, dtype, weight }) => [embedding(ids, weight(`${EMBEDDING}.weight`), dtype)],
  layer,
  finish,
};

/** Two norms with their sums, q k v before and after the rotation, the mixed heads, gate, up and their product; the larger kind of layer. */
function memory(config: LlamaConfig, at: Parameters<Architecture['memory']>[1]): LayerMemory {
  const { experts, hiddenSize } = config;
  const dense = gatedMemory(config, at, { norms: 2, gates: 3 });
  if (!experts?.sparse.includes(true)) return dense;
  const outside = gatedMemory(config, at, { norms: 2, gates: 0 });
  const inside = expertsMemory(experts, hiddenSize, at, 3);
  const sparse = {
    saved: outside.saved + inside.saved,
    backward: outside.backward + inside.backward,
  };
  if (!experts.sparse.includes(false)) return { ...outside, ...sparse };
  return {
    ...dense,
    saved: Math.max(dense.saved, sparse.saved),
    backward: Math.max(dense.backward, sparse.backward),
  };
}

/** Bytes of a layer with the given number of norms, and of tensors of the MLP's inner width. */
export function gatedMemory(
  { hiddenSize: h, intermediateSize: i, headDim, numHeads, numKeyValueHeads }: GatedConfig,
  { bytes, rank }: Parameters<Architecture['memory']>[1],
  { norms, gates }: { readonly norms: number; readonly gates: number },
): LayerMemory {
  const [q, kv] = [headDim * numHeads, headDim * numKeyValueHeads];
  return {
    stream: 2 * h * bytes,
    saved: ((2 + norms) * h + 3 * q + 4 * kv + gates * i) * bytes + 4 * (7 * rank + numHeads + norms),
    backward: (3 * h + 2 * q + 2 * kv + gates * i) * bytes,
  };
}

export function keyValues({ numKeyValueHeads: heads, headDim, slidingWindow }: GatedConfig) {
  return slidingWindow.map((window) => ({ heads, headDim, window }));
}

export function finish({ weight }: Forward, { rmsNormEps }: Pick<LlamaConfig, 'rmsNormEps'>, stream: Stream) {
  const { x, norm } = entering(stream, { weight: weight(`${FINAL_NORM}.weight`), eps: rmsNormEps });
  return norm ? rmsNorm(x, norm.weight, norm.eps) : x;
}

function layer(forward: Forward, config: LlamaConfig, index: number, stream: Stream): Stream {
  const { positions, weight, projection, projectOnto, constant } = forward;
  const { headDim, rmsNormEps: eps } = config;
  const name = (module: string) => `model.layers.${index}.${module}`;
  const norm = (module: string) => weight(`${name(module)}.weight`);

  const before = entering(stream, { weight: norm('input_layernorm'), eps });
  const own = (module: string) => projection(name(`self_attn.${module}`));
  const [q, k, v] = linearQkv(before.x, own('q_proj'), own('k_proj'), own('v_proj'), before.norm);
  const mixed = forward.attend(q, k, v, {
    layer: index,
    headDim,
    rotary: config.rotates[index] ? { cos: constant('cos'), sin: constant('sin'), positions } : undefined,
    norms: config.qkNorm ? { q: norm('self_attn.q_norm'), k: norm('self_attn.k_norm'), eps } : undefined,
    window: config.slidingWindow[index],
  });
  const attended = projectOnto(before.sum, mixed, name('self_attn.o_proj'));

  const after = entering(attended, { weight: norm('post_attention_layernorm'), eps });
  if (config.experts?.sparse[index]) {
    const x = after.norm ? rmsNorm(after.x, after.norm.weight, after.norm.eps) : after.x;
    return [mixture(forward, config.experts, name('mlp'), x), after.sum];
  }
  const [gate, up] = [projection(name('mlp.gate_proj')), projection(name('mlp.up_proj'))];
  const activated = linearSwiglu(after.x, gate, up, after.norm);
  return projectOnto(after.sum, activated, name('mlp.down_proj'));
}

/** The input of the linear modules after a norm: normed together with the addition, or still to be normed. */
export function entering([delta, residual]: Stream, norm: Norm) {
  const x = delta as Tensor;
  if (!residual) return { x, sum: x, norm };
  const { y, sum } = addRmsNorm(x, residual, norm.weight, norm.eps);
  return { x: y, sum, norm: undefined };
}

function modules(config: LlamaConfig): readonly ModuleSpec[] {
  const { hiddenSize, intermediateSize, headDim, qkvBias, outputBias, mlpBias, experts } = config;
  const queries = config.numHeads * headDim;
  const keys = config.numKeyValueHeads * headDim;
  const drawn = { kind: 'normal', deviation: config.initializerRange } as const;
  const norm = (name: string, size: number) => moduleSpec('norm', name, [size], { kind: 'one' });
  const linear = (name: string, shape: readonly [number, number], bias: boolean) =>
    moduleSpec('linear', name, shape, drawn, { bias });
  const layers = Array.from({ length: config.numLayers }, (_, layer) => {
    const prefix = `model.layers.${layer}`;
    return [
      norm(`${prefix}.input_layernorm`, hiddenSize),
      linear(`${prefix}.self_attn.q_proj`, [queries, hiddenSize], qkvBias),
      linear(`${prefix}.self_attn.k_proj`, [keys, hiddenSize], qkvBias),
      linear(`${prefix}.self_attn.v_proj`, [keys, hiddenSize], qkvBias),
      linear(`${prefix}.self_attn.o_proj`, [hiddenSize, queries], outputBias),
      ...(config.qkNorm
        ? [norm(`${prefix}.self_attn.q_norm`, headDim), norm(`${prefix}.self_attn.k_norm`, headDim)]
        : []),
      norm(`${prefix}.post_attention_layernorm`, hiddenSize),
      ...(experts?.sparse[layer]
        ? expertModules(`${prefix}.mlp`, hiddenSize, experts, drawn)
        : [
            linear(`${prefix}.mlp.gate_proj`, [intermediateSize, hiddenSize], mlpBias),
            linear(`${prefix}.mlp.up_proj`, [intermediateSize, hiddenSize], mlpBias),
            linear(`${prefix}.mlp.down_proj`, [hiddenSize, intermediateSize], mlpBias),
          ]),
    ];
  });
  return [
    embeddingModule(EMBEDDING, config),
    ...layers.flat(),
    norm(FINAL_NORM, hiddenSize),
    ...headModules(config),
  ];
}
