/**
 * Gemma 3's text models (arXiv 2503.19786): four RMSNorms a layer, heads with norms of their own, a gate of GELU, layers that attend
 * within a window and turn by other frequencies than the layers between them that attend to everything, embeddings scaled by √hidden.
 *
 *     a = RMSNorm(x);  x += RMSNorm(o(attend(rope(norm(q(a))), rope(norm(k(a))), v(a))))
 *     m = RMSNorm(x);  x += RMSNorm(down(gelu(gate(m)) · up(m)))                       gelu: the tanh form
 */
import { z } from 'zod';
import { embedding } from '../ops/embedding.js';
import { linear, linearQkv } from '../ops/gemm.js';
import { scale } from '../ops/memory.js';
import { geglu } from '../ops/mlp.js';
import { rmsNorm } from '../ops/norm.js';
import { bf16ToF32, f32ToBf16 } from '../weights/convert.js';
import { Fields } from '../weights/fields.js';
import type { JsonObject } from '../weights/json.js';
import { type ModuleSpec, moduleSpec } from '../weights/modules.js';
import { type Architecture, type Forward, NEW_MODEL, type Stream } from './architecture.js';
import { commonJson, parseCommon, parseHeads } from './config.js';
import { refuseUnknownKeys } from './config-keys.js';
import { embeddingModule, headModules } from './head-modules.js';
import { entering, finish, gatedMemory, keyValues } from './llama.js';
import { type GatedConfig, parseLayerTypes } from './llama-config.js';
import { parseRope, parseRopeSettings, type RopeConfig, ropeJson, ropeKeys, ropeTable } from './rope.js';

export interface GemmaConfig extends GatedConfig {
  readonly modelType: 'gemma3_text';
  /** RoPE of layers with a window; `rope` is that of layers that attend to everything. */
  readonly localRope: RopeConfig;
  /** Biases of the q, k, v and o projections. */
  readonly bias: boolean;
}

const EMBEDDING = 'model.embed_tokens';
const FINAL_NORM = 'model.norm';
const [GLOBAL_THETA, LOCAL_THETA] = [1_000_000, 10_000];
const DEFAULT_WINDOW = 4096;
/** One layer of so many attends to everything. */
const DEFAULT_PATTERN = 6;
const ACTIVATION = 'gelu_pytorch_tanh';

const init = z.strictObject({
  model_type: z.enum(['gemma3_text']).describe('Architecture, as config.json names it.'),
  ...NEW_MODEL,
  intermediate_size: z.int().min(1).describe('Width inside the MLP.'),
  num_key_value_heads: z.int().min(1).describe('Number of key/value heads.'),
  head_dim: z.int().min(1).describe('Width of a head.'),
  sliding_window: z.int().min(1).default(512).describe('Attention window in tokens of five of six layers.'),
});

type Init = z.output<typeof init>;

export const gemma: Architecture<GemmaConfig> = {
  modelTypes: ['gemma3_text'],

  init,
  initConflicts(section) {
    const { num_attention_heads, num_key_value_heads } = section as Init;
    if (num_attention_heads % num_key_value_heads === 0) return [];
    const message = `num_attention_heads (${num_attention_heads}) must be a multiple of num_key_value_heads (${num_key_value_heads})`;
    return [{ key: 'num_attention_heads', message }];
  },
  initDefaults: (section) => ({ query_pre_attn_scalar: (section as Init).head_dim }),

  parse,
  json,
  modules,
  computed: /\.rotary_emb\.\w*inv_freq$|\.embed_scale$/,

  // Two norms with their sums, two without, q k v before and after norm and rotation, the mixed heads, gate before
  // and after GELU, up and their product.
  memory: (config, at) => gatedMemory(config, at, { norms: 4, gates: 4 }),
  keyValues,

  constants({ rope, localRope, headDim }, positions) {
    const shape = [positions, headDim / 2];
    const [whole, local] = [rope, localRope].map((settings) => ropeTable(settings, positions));
    return {
      cos: { values: whole!.cos, shape },
      sin: { values: whole!.sin, shape },
      localCos: { values: local!.cos, shape },
      localSin: { values: local!.sin, shape },
    };
  },

  embed({ ids, dtype, weight }, { hiddenSize }) {
    const x = embedding(ids, weight(`${EMBEDDING}.weight`), dtype);
    return [scale(x, stored(Math.sqrt(hiddenSize), dtype))];
  },
  layer,
  finish,
};

/** A factor in the type of the activations, to which transformers rounds it. */
function stored(factor: number, dtype: Forward['dtype']): number {
  const single = Float32Array.of(factor);
  return (dtype === 'bf16' ? bf16ToF32(f32ToBf16(single)) : single)[0] as number;
}

function layer(forward: Forward, config: GemmaConfig, index: number, stream: Stream): Stream {
  const { positions, weight, projection, project, constant } = forward;
  const { headDim, rmsNormEps: eps } = config;
  const window = config.slidingWindow[index];
  const name = (module: string) => `model.layers.${index}.${module}`;
  const norm = (module: string) => weight(`${name(module)}.weight`);

  const before = entering(stream, { weight: norm('input_layernorm'), eps });
  const own = (module: string) => projection(name(`self_attn.${module}`));
  const [q, k, v] = linearQkv(before.x, own('q_proj'), own('k_proj'), own('v_proj'), before.norm);
  const [cos, sin] = window === undefined ? ['cos', 'sin'] : ['localCos', 'localSin'];
  const mixed = forward.attend(q, k, v, {
    layer: index,
    headDim,
    rotary: { cos: constant(cos as string), sin: constant(sin as string), positions },
    norms: { q: norm('self_attn.q_norm'), k: norm('self_attn.k_norm'), eps },
    window,
  });
  const attended = rmsNorm(project(mixed, name('self_attn.o_proj')), norm('post_attention_layernorm'), eps);

  const after = entering([attended, before.sum], { weight: norm('pre_feedforward_layernorm'), eps });
  const inner = (module: string) => {
    const { weight: w, ...beside } = projection(name(`mlp.${module}`));
    return linear(after.x, w, beside);
  };
  const fed = project(geglu(inner('gate_proj'), inner('up_proj')), name('mlp.down_proj'));
  return [rmsNorm(fed, norm('post_feedforward_layernorm'), eps), after.sum];
}

function modules(config: GemmaConfig): readonly ModuleSpec[] {
  const { hiddenSize, intermediateSize, headDim, bias } = config;
  const queries = config.numHeads * headDim;
  const keys = config.numKeyValueHeads * headDim;
  const drawn = { kind: 'normal', deviation: config.initializerRange } as const;
  // Checkpoints hold the distance from 1.
  const norm = (name: string, size: number) =>
    moduleSpec('norm', name, [size], { kind: 'one' }, { offset: 1 });
  const linearModule = (name: string, shape: readonly [number, number], biased = false) =>
    moduleSpec('linear', name, shape, drawn, { bias: biased });
  const layers = Array.from({ length: config.numLayers }, (_, index) => {
    const prefix = `model.layers.${index}`;
    return [
      norm(`${prefix}.input_layernorm`, hiddenSize),
      linearModule(`${prefix}.self_attn.q_proj`, [queries, hiddenSize], bias),
      linearModule(`${prefix}.self_attn.k_proj`, [keys, hiddenSize], bias),
      linearModule(`${prefix}.self_attn.v_proj`, [keys, hiddenSize], bias),
      linearModule(`${prefix}.self_attn.o_proj`, [hiddenSize, queries], bias),
      norm(`${prefix}.self_attn.q_norm`, headDim),
      norm(`${prefix}.self_attn.k_norm`, headDim),
      norm(`${prefix}.post_attention_layernorm`, hiddenSize),
      norm(`${prefix}.pre_feedforward_layernorm`, hiddenSize),
      linearModule(`${prefix}.mlp.gate_proj`, [intermediateSize, hiddenSize]),
      linearModule(`${prefix}.mlp.up_proj`, [intermediateSize, hiddenSize]),
      linearModule(`${prefix}.mlp.down_proj`, [hiddenSize, intermediateSize]),
      norm(`${prefix}.post_feedforward_layernorm`, hiddenSize),
    ];
  });
  return [
    embeddingModule(EMBEDDING, config),
    ...layers.flat(),
    norm(FINAL_NORM, hiddenSize),
    ...headModules(config),
  ];
}

function parse(fields: Fields): GemmaConfig {
  const common = parseCommon(
    fields,
    { modelType: 'gemma3_text', classPrefix: 'Gemma3', heads: ['causal', 'sequence', 'token'] },
    {
      maxPositions: 131_072,
      tieWordEmbeddings: true,
      bosTokenId: 2,
      eosTokenId: 1,
      padTokenId: 0,
      initializerRange: 0.02,
    },
  );
  const { numHeads, numKeyValueHeads, headDim } = parseHeads(fields);
  if (headDim % 2 !== 0) fields.fail('head_dim', 'an even number');
  const scalar = fields.number('query_pre_attn_scalar', 0) ?? 256;
  if (scalar !== headDim)
    fields.fail('query_pre_attn_scalar', `head_dim, ${headDim} (other scales of scores are not supported)`);
  for (const key of ['hidden_activation', 'hidden_act'])
    if ((fields.string(key) ?? ACTIVATION) !== ACTIVATION)
      fields.fail(key, `'${ACTIVATION}'; other activations are not supported`);
  const config: GemmaConfig = {
    ...common,
    modelType: 'gemma3_text',
    intermediateSize: fields.requiredInteger('intermediate_size'),
    numHeads,
    numKeyValueHeads,
    headDim,
    rmsNormEps: fields.number('rms_norm_eps', 0) ?? 1e-6,
    ...parseRopes(fields, headDim, common.maxPositions),
    bias: fields.boolean('attention_bias') === true,
    slidingWindow: parseWindows(fields, common.numLayers),
  };
  refuseUnknownKeys(fields);
  return config;
}

/** `rope_parameters` by the type of layer; before that `rope_theta` and `rope_scaling` were those of layers without a window. */
function parseRopes(fields: Fields, headDim: number, maxPositions: number) {
  const settings = fields.nested('rope_parameters');
  const theta = fields.number('rope_local_base_freq', 0) ?? LOCAL_THETA;
  if (settings === undefined) {
    const rope = parseRope(fields, headDim, maxPositions, GLOBAL_THETA);
    return { rope, localRope: { headDim, theta, scaling: { type: 'default' } } as const };
  }
  const of = (key: string, absent: number) =>
    parseRopeSettings(
      settings.nested(key) ?? new Fields({}, `${settings.where}.${key}`),
      headDim,
      maxPositions,
      absent,
    );
  const ropes = {
    rope: of('full_attention', fields.number('rope_theta', 0) ?? GLOBAL_THETA),
    localRope: of('sliding_attention', theta),
  };
  for (const [key] of settings.unread())
    settings.fail(key, 'only full_attention and sliding_attention, each with its settings');
  return ropes;
}

function parseWindows(fields: Fields, numLayers: number): (number | undefined)[] {
  const window = fields.integer('sliding_window', 1) ?? DEFAULT_WINDOW;
  const pattern = fields.integer('sliding_window_pattern', 1) ?? DEFAULT_PATTERN;
  const types = parseLayerTypes(fields, numLayers);
  return Array.from({ length: numLayers }, (_, index) => {
    const whole = types ? types[index] === 'full_attention' : (index + 1) % pattern === 0;
    return whole ? undefined : window;
  });
}

/** The spelling of transformers 4, which 5 reads too, but for what that cannot say: positions within windows that are scaled. */
function ropesJson({ rope, localRope }: GemmaConfig): JsonObject {
  if (localRope.scaling.type === 'default')
    return { ...ropeKeys(rope), rope_local_base_freq: localRope.theta };
  return { rope_parameters: { full_attention: ropeJson(rope), sliding_attention: ropeJson(localRope) } };
}

function json(config: GemmaConfig): JsonObject {
  const { rope_parameters, rope_theta, rope_scaling, rope_local_base_freq, ...source } = commonJson(config);
  const { sliding_window_pattern, hidden_act, ...common } = source;
  return {
    ...common,
    intermediate_size: config.intermediateSize,
    num_attention_heads: config.numHeads,
    num_key_value_heads: config.numKeyValueHeads,
    head_dim: config.headDim,
    query_pre_attn_scalar: config.headDim,
    hidden_activation: ACTIVATION,
    rms_norm_eps: config.rmsNormEps,
    attention_bias: config.bias,
    ...ropesJson(config),
    sliding_window: config.slidingWindow.find((window) => window !== undefined) ?? DEFAULT_WINDOW,
    layer_types: config.slidingWindow.map((window) =>
      window === undefined ? 'full_attention' : 'sliding_attention',
    ),
  };
}
