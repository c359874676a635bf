/**
 * Qwen3.5's text models: three of four layers go through the sequence by the gated delta rule (arXiv 2412.06464), the others attend,
 * with a gate on what they give and a rotation of a quarter of each head. Norms are stored as their distance from 1.
 *
 *     a = RMSNorm(x);  linear:  x += out(RMSNorm(delta(conv(qkv(a)), a(a), b(a))) · silu(z(a)))
 *                      full:    x += o(attend(rope(norm(q)), rope(norm(k(a))), v(a)) · σ(g)),  [q, g] = q_proj(a) by heads
 *     m = RMSNorm(x);  x += down(silu(gate(m)) · up(m)), or the mixture of experts of m (`experts.ts`)
 */
import { embedding } from '../ops/embedding.js';
import { linear, linearSwiglu } from '../ops/gemm.js';
import { splitHalves } from '../ops/memory.js';
import { sigmoidGate, swiglu } from '../ops/mlp.js';
import { rmsNorm } from '../ops/norm.js';
import { causalConv1d, gatedDeltaRule } from '../ops/recurrence.js';
import type { Tensor } from '../runtime/tensor.js';
import { type ModuleSpec, moduleSpec, type WeightSpec } from '../weights/modules.js';
import type { Architecture, Forward, LayerMemory, Stream } from './architecture.js';
import { expertModules, expertsMemory, mixture, SPREAD, spreadConstant } from './experts.js';
import { embeddingModule, headModules } from './head-modules.js';
import { entering, finish, gatedMemory } from './llama.js';
import { parseQwen35, type Qwen35Config, qwen35Json } from './qwen3_5-config.js';
import {
  qwen35Conflicts,
  qwen35Defaults,
  qwen35Init,
  qwen35MoeDefaults,
  qwen35MoeInit,
} from './qwen3_5-new.js';
import { ropeTable } from './rope.js';

const EMBEDDING = 'model.embed_tokens';
const FINAL_NORM = 'model.norm';

export const qwen35: Architecture<Qwen35Config> = {
  modelTypes: ['qwen3_5_text', 'qwen3_5'],

  init: qwen35Init,
  initConflicts: qwen35Conflicts,
  initDefaults: qwen35Defaults,

  parse: parseQwen35,
  json: qwen35Json,
  modules,
  // Prediction of several tokens and the images' tower are not read.
  computed: /\.rotary_emb\.inv_freq$|^mtp\.|^(model\.)?visual\./,

  memory,
  keyValues: ({ layers, numKeyValueHeads, headDim }) =>
    layers.map((kind) => ({ heads: kind === 'full' ? numKeyValueHeads : 0, headDim })),
  states: ({ layers, delta }) =>
    layers.map((kind) => {
      if (kind === 'full') return undefined;
      const { keyHeads, keySize, heads, valueSize, taps } = delta;
      return {
        convolution: [taps - 1, 2 * keyHeads * keySize + heads * valueSize],
        delta: [heads, keySize, valueSize],
      };
    }),

  constants({ rope: settings, experts, hiddenSize }, positions) {
    const { cos, sin } = ropeTable(settings, positions);
    const shape = [positions, settings.headDim / 2];
    const rotation = { cos: { values: cos, shape }, sin: { values: sin, shape } };
    return experts ? { ...rotation, [SPREAD]: spreadConstant(hiddenSize) } : rotation;
  },

  embed: ({ ids, dtype, weight }) => [embedding(ids, weight(`${EMBEDDING}.weight`), dtype)],
  layer,
  finish,
};

/** The same with experts in place of the MLPs. */
export const qwen35Moe: Architecture<Qwen35Config> = {
  ...qwen35,
  modelTypes: ['qwen3_5_moe_text', 'qwen3_5_moe'],
  init: qwen35MoeInit,
  initDefaults: qwen35MoeDefaults,
};

function layer(forward: Forward, config: Qwen35Config, index: number, stream: Stream): Stream {
  const { weight, projection, projectOnto } = forward;
  const { rmsNormEps: eps } = config;
  const name = (module: string) => `model.layers.${index}.${module}`;
  const norm = (module: string) => weight(`${name(module)}.weight`);

  const before = entering(stream, { weight: norm('input_layernorm'), eps });
  const x = before.norm ? rmsNorm(before.x, before.norm.weight, eps) : before.x;
  const mixed =
    config.layers[index] === 'full'
      ? attend(forward, config, index, name('self_attn'), x)
      : recur(forward, config, index, name('linear_attn'), x);
  const output = config.layers[index] === 'full' ? 'self_attn.o_proj' : 'linear_attn.out_proj';

  const after = entering(projectOnto(before.sum, mixed, name(output)), {
    weight: norm('post_attention_layernorm'),
    eps,
  });
  if (config.experts) {
    const m = after.norm ? rmsNorm(after.x, after.norm.weight, eps) : after.x;
    return [mixture(forward, config.experts, name('mlp'), m), after.sum];
  }
  const [gate, up] = [projection(name('mlp.gate_proj')), projection(name('mlp.up_proj'))];
  return projectOnto(after.sum, linearSwiglu(after.x, gate, up, after.norm), name('mlp.down_proj'));
}

function attend(forward: Forward, config: Qwen35Config, layer: number, name: string, x: Tensor): Tensor {
  const { weight, constant, positions } = forward;
  const { headDim, rmsNormEps: eps } = config;
  const project = (module: string) => {
    const { weight: w, ...beside } = forward.projection(`${name}.${module}`);
    return linear(x, w, beside);
  };
  const [q, gate] = splitHalves(project('q_proj'), 2 * headDim);
  const mixed = forward.attend(q, project('k_proj'), project('v_proj'), {
    layer,
    headDim,
    rotary: { cos: constant('cos'), sin: constant('sin'), positions },
    norms: { q: weight(`${name}.q_norm.weight`), k: weight(`${name}.k_norm.weight`), eps },
  });
  return sigmoidGate(gate, mixed);
}

function recur(forward: Forward, config: Qwen35Config, layer: number, name: string, x: Tensor): Tensor {
  const { weight } = forward;
  const { delta, rmsNormEps: eps } = config;
  const project = (module: string) => {
    const { weight: w, ...beside } = forward.projection(`${name}.${module}`);
    return linear(x, w, beside);
  };
  const sequences = forward.recurrence(layer);
  const mixed = gatedDeltaRule(
    {
      qkv: causalConv1d(project('in_proj_qkv'), weight(`${name}.conv1d.weight`), sequences),
      a: project('in_proj_a'),
      b: project('in_proj_b'),
      aLog: weight(`${name}.A_log`),
      dtBias: weight(`${name}.dt_bias`),
    },
    delta,
    sequences,
  );
  return swiglu(project('in_proj_z'), rmsNorm(mixed, weight(`${name}.norm.weight`), eps));
}

/** Bytes of the larger kind of layer. */
function memory(config: Qwen35Config, at: Parameters<Architecture['memory']>[1]): LayerMemory {
  const { hiddenSize: h, numHeads, numKeyValueHeads, headDim, delta, experts } = config;
  const { bytes, rank } = at;
  const { keyHeads, keySize, heads, valueSize } = delta;
  const i = experts ? 0 : config.intermediateSize;
  const inside = experts ? expertsMemory(experts, h, at, 3) : { saved: 0, backward: 0 };
  const full = gatedMemory({ ...config, slidingWindow: [] }, at, { norms: 3, gates: experts ? 0 : 3 });
  const [q, kv] = [numHeads * headDim, numKeyValueHeads * headDim];
  const values = heads * valueSize;
  const width = 2 * keyHeads * keySize + values;
  // qkv before and after the convolution; z, o, its norm and their product; a, b.
  const linearSaved =
    (5 * h + 2 * width + 4 * values + 2 * heads + 3 * i) * bytes + 4 * (8 * rank + heads + 2);
  // The backward of the MLP comes first, and frees its saved tensors before that of the rest.
  const mlp = (3 * h + 3 * i) * bytes + inside.backward;
  const linearRest =
    (3 * h + 3 * width + 3 * values + 2 * heads) * bytes + 4 * (2 * heads + width + 2 * heads * keySize);
  const fullRest = (3 * h + 6 * q + 2 * kv) * bytes;
  return {
    stream: full.stream,
    // The gate of the heads, and the gated heads.
    saved: Math.max(full.saved + 2 * q * bytes, linearSaved) + inside.saved,
    backward: Math.max(mlp, Math.max(linearRest, fullRest) - 3 * i * bytes - inside.saved),
  };
}

function modules(config: Qwen35Config): readonly ModuleSpec[] {
  const { hiddenSize, intermediateSize, headDim, bias, delta, experts } = config;
  const queries = config.numHeads * headDim;
  const keys = config.numKeyValueHeads * headDim;
  const { keyHeads, keySize, heads, valueSize, taps } = delta;
  const values = heads * valueSize;
  const width = 2 * keyHeads * keySize + values;
  const drawn = { kind: 'normal', deviation: config.initializerRange } as const;
  // Checkpoints hold the distance from 1.
  const norm = (name: string, size: number) =>
    moduleSpec('norm', name, [size], { kind: 'one' }, { offset: 1 });
  const linearModule = (name: string, shape: readonly [number, number], biased = false) =>
    moduleSpec('linear', name, shape, drawn, { bias: biased });
  const own = (name: string, init: WeightSpec['init']): ModuleSpec => ({
    name,
    kind: 'norm',
    shape: [heads],
    weights: [{ name, shape: [heads], kind: 'norm', init }],
  });
  const layers = config.layers.map((kind, index) => {
    const prefix = `model.layers.${index}`;
    const attention = `${prefix}.self_attn`;
    const linearAttention = `${prefix}.linear_attn`;
    return [
      norm(`${prefix}.input_layernorm`, hiddenSize),
      ...(kind === 'full'
        ? [
            linearModule(`${attention}.q_proj`, [2 * queries, hiddenSize], bias),
            linearModule(`${attention}.k_proj`, [keys, hiddenSize], bias),
            linearModule(`${attention}.v_proj`, [keys, hiddenSize], bias),
            linearModule(`${attention}.o_proj`, [hiddenSize, queries], bias),
            norm(`${attention}.q_norm`, headDim),
            norm(`${attention}.k_norm`, headDim),
          ]
        : [
            own(`${linearAttention}.dt_bias`, { kind: 'one' }),
            own(`${linearAttention}.A_log`, { kind: 'one' }),
            moduleSpec('convolution', `${linearAttention}.conv1d`, [width, 1, taps], {
              kind: 'uniform',
              bound: 1 / Math.sqrt(taps),
            }),
            moduleSpec('norm', `${linearAttention}.norm`, [valueSize], { kind: 'one' }),
            linearModule(`${linearAttention}.out_proj`, [hiddenSize, values]),
            linearModule(`${linearAttention}.in_proj_qkv`, [width, hiddenSize]),
            linearModule(`${linearAttention}.in_proj_z`, [values, hiddenSize]),
            linearModule(`${linearAttention}.in_proj_b`, [heads, hiddenSize]),
            linearModule(`${linearAttention}.in_proj_a`, [heads, hiddenSize]),
          ]),
      norm(`${prefix}.post_attention_layernorm`, hiddenSize),
      ...(experts
        ? expertModules(`${prefix}.mlp`, hiddenSize, experts, drawn)
        : [
            linearModule(`${prefix}.mlp.gate_proj`, [intermediateSize, hiddenSize]),
            linearModule(`${prefix}.mlp.up_proj`, [intermediateSize, hiddenSize]),
            linearModule(`${prefix}.mlp.down_proj`, [hiddenSize, intermediateSize]),
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
