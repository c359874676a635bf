/**
 * OPT (arXiv 2205.01068): LayerNorm before or after each block, learned positions, biases, an MLP without a gate. With norms
 * before the blocks:
 *
 *     a = LayerNorm(x);  x += out(attend(q(a), k(a), v(a)))
 *     m = LayerNorm(x);  x += fc2(f(fc1(m)))                       f: ReLU or GELU
 *
 * With norms after them x = LayerNorm(x + …) takes the place of x += …. Embeddings may have another width than the layers; two
 * projections then stand around the layers.
 */
import { z } from 'zod';
import { embedding } from '../ops/embedding.js';
import { add } from '../ops/memory.js';
import { gelu, relu } from '../ops/mlp.js';
import { addLayerNorm, type LayerNormParameters } from '../ops/norm.js';
import type { Tensor } from '../runtime/tensor.js';
import type { Fields } from '../weights/fields.js';
import type { JsonObject } from '../weights/json.js';
import { type ModuleSpec, moduleSpec } from '../weights/modules.js';
import { type Architecture, type Forward, NEW_MODEL, type Stream } from './architecture.js';
import { commonJson, type ModelConfig, parseCommon } from './config.js';
import { type FixedKeys, refuseUnknownKeys } from './config-keys.js';
import { embeddingModule, headModules } from './head-modules.js';

export interface OptConfig extends ModelConfig {
  readonly modelType: 'opt';
  readonly ffnSize: number;
  readonly numHeads: number;
  readonly activation: keyof typeof ACTIVATIONS;
  /** LayerNorm before attention and MLP, or after each. */
  readonly normFirst: boolean;
  /** No norm after the last layer; with the norms after the blocks there never is one. */
  readonly withoutFinalNorm: boolean;
  /** Biases of the linear layers within the blocks. */
  readonly bias: boolean;
  /** Weights and biases of the norms. */
  readonly affine: boolean;
}

const ACTIVATIONS = { relu, gelu } as const;

const FIXED: FixedKeys = {
  activation_dropout: [0, '0 (dropout inside the MLP is not supported)'],
  layerdrop: [0, '0 (leaving out layers is not supported)'],
};

/** Row of the learned positions that belongs to position 0. */
const FIRST_POSITION = 2;
const EPS = 1e-5;
const DECODER = 'model.decoder';

const init = z.strictObject({
  model_type: z.enum(['opt']).describe('Architecture, as config.json names it.'),
  ...NEW_MODEL,
  ffn_dim: z.int().min(1).describe('Width inside the MLP, usually 4 × hidden_size.'),
  word_embed_proj_dim: z
    .int()
    .min(1)
    .optional()
    .describe('Width of the embeddings where it is not hidden_size.'),
  do_layer_norm_before: z
    .boolean()
    .default(true)
    .describe('Norms before attention and MLP, which trains more steadily, or after them.'),
  activation_function: z.enum(['relu', 'gelu']).default('relu').describe('Inside the MLP.'),
  init_std: z.number().positive().default(0.02).describe('Standard deviation of the random weights.'),
});

type Init = z.output<typeof init>;

export const opt: Architecture<OptConfig> = {
  modelTypes: ['opt'],

  init,
  initConflicts(section) {
    const { hidden_size, num_attention_heads } = section as Init;
    if (hidden_size % num_attention_heads === 0) return [];
    const message = `hidden_size (${hidden_size}) must be a multiple of num_attention_heads (${num_attention_heads})`;
    return [{ key: 'num_attention_heads', message }];
  },

  parse,
  json,
  modules,

  // Saved: two norms with their sums, q k v, the mixed heads, the MLP before and after its activation. The backward of the
  // attention and that of the MLP are not in memory together.
  memory({ hiddenSize: h, ffnSize: f, numHeads, normFirst }, { bytes, rank }) {
    return {
      stream: (normFirst ? 2 : 1) * h * bytes,
      saved: (8 * h + 2 * f) * bytes + 4 * (6 * rank + numHeads + 4),
      backward: (2 * h + Math.max(3 * h, 2 * f)) * bytes,
    };
  },

  keyValues: ({ numLayers, numHeads: heads, hiddenSize }) =>
    Array.from({ length: numLayers }, () => ({ heads, headDim: hiddenSize / heads })),

  constants: ({ affine, hiddenSize }) =>
    affine ? {} : { ones: { values: new Float32Array(hiddenSize).fill(1), shape: [hiddenSize] } },

  embed({ ids, positions, dtype, weight, project }, config) {
    const tokens = embedding(ids, weight(`${DECODER}.embed_tokens.weight`), dtype);
    const x = isProjected(config) ? project(tokens, `${DECODER}.project_in`) : tokens;
    const at = embedding(positions, weight(`${DECODER}.embed_positions.weight`), dtype, FIRST_POSITION);
    return config.normFirst ? [x, at] : [add(x, at)];
  },
  layer,
  finish(forward, config, [x, residual]) {
    const { normFirst, withoutFinalNorm } = config;
    let y = x as Tensor;
    if (normFirst && withoutFinalNorm) y = add(y, residual as Tensor);
    else if (normFirst)
      y = addLayerNorm(y, residual as Tensor, norm(forward, config, `${DECODER}.final_layer_norm`), EPS).y;
    return isProjected(config) ? forward.project(y, `${DECODER}.project_out`) : y;
  },
};

/** Norms first: [delta, residual] → [delta, residual], added inside the next norm. Norms last: [x] → [x]. */
function layer(forward: Forward, config: OptConfig, index: number, [x, residual]: Stream): Stream {
  const { normFirst, hiddenSize, numHeads, activation } = config;
  const name = (module: string) => `${DECODER}.layers.${index}.${module}`;
  const project = (y: Tensor, module: string) => forward.project(y, name(module));
  const addNorm = (y: Tensor, to: Tensor, module: string) =>
    addLayerNorm(y, to, norm(forward, config, name(module)), EPS);

  const before = normFirst
    ? addNorm(x as Tensor, residual as Tensor, 'self_attn_layer_norm')
    : { y: x as Tensor, sum: x as Tensor };
  const mixed = forward.attend(
    project(before.y, 'self_attn.q_proj'),
    project(before.y, 'self_attn.k_proj'),
    project(before.y, 'self_attn.v_proj'),
    { layer: index, headDim: hiddenSize / numHeads },
  );
  const attended = project(mixed, 'self_attn.out_proj');

  const after = addNorm(attended, before.sum, normFirst ? 'final_layer_norm' : 'self_attn_layer_norm');
  const fed = project(ACTIVATIONS[activation](project(after.y, 'fc1')), 'fc2');
  return normFirst ? [fed, after.sum] : [addNorm(fed, after.y, 'final_layer_norm').y];
}

function norm({ weight, constant }: Forward, { affine }: OptConfig, module: string): LayerNormParameters {
  if (affine) return { weight: weight(`${module}.weight`), bias: weight(`${module}.bias`) };
  return { weight: { name: 'ones', value: constant('ones') } };
}

function isProjected({ hiddenSize, outputSize }: OptConfig): boolean {
  return hiddenSize !== outputSize;
}

function modules(config: OptConfig): readonly ModuleSpec[] {
  const { hiddenSize, outputSize, ffnSize, maxPositions, numLayers, bias, affine } = config;
  const drawn = { kind: 'normal', deviation: config.initializerRange } as const;
  const normAt = (name: string) =>
    affine ? [moduleSpec('norm', name, [hiddenSize], { kind: 'one' }, { bias: true })] : [];
  const linear = (name: string, shape: readonly [number, number]) =>
    moduleSpec('linear', name, shape, drawn, { bias });
  const projection = (name: string, shape: readonly [number, number]) =>
    isProjected(config) ? [moduleSpec('linear', `${DECODER}.${name}`, shape, drawn)] : [];
  const layers = Array.from({ length: numLayers }, (_, index) => {
    const prefix = `${DECODER}.layers.${index}`;
    return [
      ...normAt(`${prefix}.self_attn_layer_norm`),
      linear(`${prefix}.self_attn.q_proj`, [hiddenSize, hiddenSize]),
      linear(`${prefix}.self_attn.k_proj`, [hiddenSize, hiddenSize]),
      linear(`${prefix}.self_attn.v_proj`, [hiddenSize, hiddenSize]),
      linear(`${prefix}.self_attn.out_proj`, [hiddenSize, hiddenSize]),
      ...normAt(`${prefix}.final_layer_norm`),
      linear(`${prefix}.fc1`, [ffnSize, hiddenSize]),
      linear(`${prefix}.fc2`, [hiddenSize, ffnSize]),
    ];
  });
  return [
    embeddingModule(`${DECODER}.embed_tokens`, config),
    ...projection('project_in', [hiddenSize, outputSize]),
    moduleSpec('embedding', `${DECODER}.embed_positions`, [maxPositions + FIRST_POSITION, hiddenSize], drawn),
    ...layers.flat(),
    ...(config.normFirst && !config.withoutFinalNorm ? normAt(`${DECODER}.final_layer_norm`) : []),
    ...projection('project_out', [outputSize, hiddenSize]),
    ...headModules(config),
  ];
}

function parse(fields: Fields): OptConfig {
  const common = parseCommon(
    fields,
    { modelType: 'opt', classPrefix: 'OPT', heads: ['causal', 'sequence'] },
    {
      maxPositions: 2048,
      tieWordEmbeddings: true,
      bosTokenId: 2,
      eosTokenId: 2,
      padTokenId: 1,
      initializerRange: 0.02,
    },
    'init_std',
  );
  const numHeads = fields.requiredInteger('num_attention_heads');
  if (common.hiddenSize % numHeads !== 0) {
    fields.fail('hidden_size', `a multiple of num_attention_heads (${numHeads})`);
  }
  const activation = fields.string('activation_function') ?? 'relu';
  if (!Object.hasOwn(ACTIVATIONS, activation)) {
    fields.fail('activation_function', "'relu' or 'gelu'; other activations are not supported");
  }
  // Dropout of hidden states acts in training alone, where it is not applied (docs/reference/models.md).
  fields.number('dropout');
  const config: OptConfig = {
    ...common,
    modelType: 'opt',
    outputSize: fields.integer('word_embed_proj_dim', 1) ?? common.hiddenSize,
    ffnSize: fields.requiredInteger('ffn_dim'),
    numHeads,
    activation: activation as OptConfig['activation'],
    normFirst: fields.boolean('do_layer_norm_before') ?? true,
    withoutFinalNorm: fields.boolean('_remove_final_layer_norm') ?? false,
    bias: fields.boolean('enable_bias') ?? true,
    affine: fields.boolean('layer_norm_elementwise_affine') ?? true,
  };
  refuseUnknownKeys(fields, FIXED);
  return config;
}

function json(config: OptConfig): JsonObject {
  return {
    ...commonJson(config, 'init_std'),
    ffn_dim: config.ffnSize,
    num_attention_heads: config.numHeads,
    word_embed_proj_dim: config.outputSize,
    activation_function: config.activation,
    do_layer_norm_before: config.normFirst,
    _remove_final_layer_norm: config.withoutFinalNorm,
    enable_bias: config.bias,
    layer_norm_elementwise_affine: config.affine,
  };
}
