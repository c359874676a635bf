/**
 * DeBERTa with relative positions alone, as the v3 checkpoints are (arXiv 2006.03654, 2111.09543): an encoder, in which every token
 * sees all others of its sequence. R holds one vector for each bucket of distances; it passes the same projections as the tokens:
 *
 *     r = LayerNorm(R)
 *     x = LayerNorm(x + out(attend(q(x), k(x), v(x); q(r), k(r))))
 *     x = LayerNorm(x + output(GELU(intermediate(x))))
 */
import { z } from 'zod';
import { logBuckets } from '../ops/disentangled-attention.js';
import { embedding } from '../ops/embedding.js';
import { gelu } from '../ops/mlp.js';
import { addLayerNorm, type LayerNormParameters, layerNorm } from '../ops/norm.js';
import type { Tensor } from '../runtime/tensor.js';
import type { Fields } from '../weights/fields.js';
import type { JsonObject } from '../weights/json.js';
import { type ModuleSpec, moduleSpec } from '../weights/modules.js';
import { type Architecture, type Forward, NEW_MODEL, type Stream } from './architecture.js';
import { commonJson, type ModelConfig, parseCommon } from './config.js';
import { type FixedKeys, refuseUnknownKeys } from './config-keys.js';
import { embeddingModule } from './head-modules.js';

export interface DebertaConfig extends ModelConfig {
  readonly modelType: 'deberta-v2';
  readonly intermediateSize: number;
  readonly numHeads: number;
  readonly normEps: number;
  /** Buckets of distances in each direction. */
  readonly positionBuckets: number;
  /** The distance at which the last bucket ends. */
  readonly maxRelativePositions: number;
}

const ENCODER = 'deberta.encoder';
const RELATIVE = `${ENCODER}.rel_embeddings`;
const EMBEDDINGS = 'deberta.embeddings';

/** Row of the dropout masks of relative positions; sequences have rows from 0 on. */
const RELATIVE_ROW = -1;

const FIXED: FixedKeys = {
  conv_kernel_size: [0, '0 (the convolution of the v2 checkpoints is not supported)'],
  type_vocab_size: [0, '0 (token types are not supported)'],
};

const init = z.strictObject({
  model_type: z.enum(['deberta-v2']).describe('Architecture, as config.json names it.'),
  ...NEW_MODEL,
  intermediate_size: z.int().min(1).describe('Width inside the MLP, usually 4 × hidden_size.'),
  position_buckets: z
    .int()
    .min(4)
    .default(256)
    .describe('Buckets of distances in each direction; v3 models have 256.'),
  initializer_range: z
    .number()
    .positive()
    .default(0.02)
    .describe('Standard deviation of the random weights.'),
});

type Init = z.output<typeof init>;

export const debertaV2: Architecture<DebertaConfig> = {
  modelTypes: ['deberta-v2'],
  bidirectional: true,
  classifier: {
    module: 'classifier',
    reads: 'first',
    pool: (x, project) => gelu(project(x, 'pooler.dense')),
  },

  init,
  initConflicts(section) {
    const { hidden_size, num_attention_heads, max_position_embeddings, position_buckets } = section as Init;
    const conflicts = [];
    if (hidden_size % num_attention_heads !== 0) {
      const message = `hidden_size (${hidden_size}) must be a multiple of num_attention_heads (${num_attention_heads})`;
      conflicts.push({ key: 'num_attention_heads', message });
    }
    if (!hasFullBuckets(position_buckets, max_position_embeddings)) {
      const message = `position_buckets (${position_buckets}) must be ${fewBuckets(max_position_embeddings)}`;
      conflicts.push({ key: 'position_buckets', message });
    }
    return conflicts;
  },
  initDefaults: () => ({
    relative_attention: true,
    share_att_key: true,
    pos_att_type: ['p2c', 'c2p'],
    norm_rel_ebd: 'layer_norm',
    position_biased_input: false,
    type_vocab_size: 0,
  }),

  parse,
  json,
  modules,
  /** The heads of pre-training, which are not read. */
  computed: /^(?:lm_predictions|mask_predictions|cls)\.|^deberta\.embeddings\.position_ids$/,

  // Saved: two norms with their sums, q k v, the mixed heads, the MLP before and after its activation. For the relative
  // positions: values before and after their norm, q and k.
  memory({ hiddenSize: h, intermediateSize: f, numHeads, positionBuckets }, { bytes, rank }) {
    return {
      fixed: 2 * positionBuckets * (4 * h * bytes + 4 * 2 * rank),
      stream: h * bytes,
      saved: (8 * h + 2 * f) * bytes + 4 * (6 * rank + numHeads + 4),
      backward: (2 * h + Math.max(3 * h, 2 * f)) * bytes,
    };
  },

  keyValues: ({ numLayers, numHeads: heads, hiddenSize }) =>
    Array.from({ length: numLayers }, () => ({ heads, headDim: hiddenSize / heads })),

  constants({ positionBuckets, maxRelativePositions }, positions) {
    const rows = 2 * positionBuckets;
    return {
      buckets: { values: logBuckets(positions, positionBuckets, maxRelativePositions), shape: [positions] },
      relativePositions: { values: Int32Array.from({ length: rows }, (_, row) => row), shape: [rows] },
      relativeRows: { values: new Int32Array(rows).fill(RELATIVE_ROW), shape: [rows] },
    };
  },

  embed(forward, { normEps }) {
    const { ids, weight, dtype } = forward;
    const x = embedding(ids, weight(`${EMBEDDINGS}.word_embeddings.weight`), dtype);
    return [layerNorm(x, norm(forward, `${EMBEDDINGS}.LayerNorm`), normEps)];
  },
  layer,
  finish: (_, _config, [x]) => x as Tensor,
};

function layer(forward: Forward, config: DebertaConfig, index: number, [x]: Stream): Stream {
  const { hiddenSize, numHeads, normEps } = config;
  const name = (module: string) => `${ENCODER}.layer.${index}.${module}`;
  const project = (y: Tensor, module: string) => forward.project(y, name(module));
  const addNorm = (y: Tensor, to: Tensor, module: string) =>
    addLayerNorm(y, to, norm(forward, name(module)), normEps).y;

  const positions = forward.constant('relativePositions');
  const rows = { rowIds: forward.constant('relativeRows'), positions };
  // Computed anew for each layer: it is small, and the stream between layers stays a single tensor.
  const relative = layerNorm(
    embedding(positions, forward.weight(`${RELATIVE}.weight`), forward.dtype),
    norm(forward, `${ENCODER}.LayerNorm`),
    normEps,
  );
  const tokens = x as Tensor;
  const mixed = forward.attend(
    project(tokens, 'attention.self.query_proj'),
    project(tokens, 'attention.self.key_proj'),
    project(tokens, 'attention.self.value_proj'),
    {
      layer: index,
      headDim: hiddenSize / numHeads,
      relative: {
        positionQueries: forward.project(relative, name('attention.self.query_proj'), rows),
        positionKeys: forward.project(relative, name('attention.self.key_proj'), rows),
        buckets: forward.constant('buckets'),
      },
    },
  );
  const attended = addNorm(project(mixed, 'attention.output.dense'), tokens, 'attention.output.LayerNorm');
  const fed = project(gelu(project(attended, 'intermediate.dense')), 'output.dense');
  return [addNorm(fed, attended, 'output.LayerNorm')];
}

function norm({ weight }: Forward, module: string): LayerNormParameters {
  return { weight: weight(`${module}.weight`), bias: weight(`${module}.bias`) };
}

function modules(config: DebertaConfig): readonly ModuleSpec[] {
  const { hiddenSize, intermediateSize, numLayers, positionBuckets, head } = config;
  const drawn = { kind: 'normal', deviation: config.initializerRange } as const;
  const normAt = (name: string) => moduleSpec('norm', name, [hiddenSize], { kind: 'one' }, { bias: true });
  const linear = (name: string, shape: readonly [number, number]) =>
    moduleSpec('linear', name, shape, drawn, { bias: true });
  const square = [hiddenSize, hiddenSize] as const;
  const layers = Array.from({ length: numLayers }, (_, index) => {
    const prefix = `${ENCODER}.layer.${index}`;
    return [
      linear(`${prefix}.attention.self.query_proj`, square),
      linear(`${prefix}.attention.self.key_proj`, square),
      linear(`${prefix}.attention.self.value_proj`, square),
      linear(`${prefix}.attention.output.dense`, square),
      normAt(`${prefix}.attention.output.LayerNorm`),
      linear(`${prefix}.intermediate.dense`, [intermediateSize, hiddenSize]),
      linear(`${prefix}.output.dense`, [hiddenSize, intermediateSize]),
      normAt(`${prefix}.output.LayerNorm`),
    ];
  });
  return [
    embeddingModule(`${EMBEDDINGS}.word_embeddings`, config),
    normAt(`${EMBEDDINGS}.LayerNorm`),
    moduleSpec('embedding', RELATIVE, [2 * positionBuckets, hiddenSize], drawn),
    normAt(`${ENCODER}.LayerNorm`),
    ...layers.flat(),
    ...(head.kind === 'sequence'
      ? [moduleSpec('pooler', 'pooler.dense', square, drawn, { bias: true })]
      : []),
    ...('numLabels' in head
      ? [moduleSpec('score', 'classifier', [head.numLabels, hiddenSize], drawn, { bias: true })]
      : []),
  ];
}

function parse(fields: Fields): DebertaConfig {
  const common = parseCommon(
    fields,
    { modelType: 'deberta-v2', classPrefix: 'DebertaV2', heads: ['none', 'sequence', 'token'] },
    {
      maxPositions: 512,
      tieWordEmbeddings: true,
      bosTokenId: undefined,
      eosTokenId: undefined,
      padTokenId: 0,
      initializerRange: 0.02,
    },
  );
  const { hiddenSize, maxPositions } = common;
  const numHeads = fields.requiredInteger('num_attention_heads');
  if (hiddenSize % numHeads !== 0) {
    fields.fail('hidden_size', `a multiple of num_attention_heads (${numHeads})`);
  }
  requireV3(fields, hiddenSize);
  const positionBuckets = fields.requiredInteger('position_buckets', 4);
  const maxRelative = fields.integer('max_relative_positions', -1) ?? -1;
  const maxRelativePositions = maxRelative < 1 ? maxPositions : maxRelative;
  if (!hasFullBuckets(positionBuckets, maxRelativePositions)) {
    fields.fail('position_buckets', fewBuckets(maxRelativePositions));
  }
  const config: DebertaConfig = {
    ...common,
    modelType: 'deberta-v2',
    intermediateSize: fields.requiredInteger('intermediate_size'),
    numHeads,
    normEps: fields.number('layer_norm_eps', 0) ?? 1e-7,
    positionBuckets,
    maxRelativePositions,
  };
  refuseUnknownKeys(fields, FIXED);
  return config;
}

/** Whether every bucket has a distance, so that buckets of neighbouring distances are neighbours. */
function hasFullBuckets(span: number, longest: number): boolean {
  if (longest <= span / 2 + 1) return false;
  const buckets = logBuckets(longest, span, longest);
  return buckets.every((bucket, distance) => bucket - (buckets[distance - 1] ?? 0) <= 1);
}

const fewBuckets = (longest: number) =>
  `few enough that each bucket has a distance of its own (at most about ${Math.floor((2 * longest) / Math.E)} for distances below ${longest})`;

/** Refuses settings that the v3 checkpoints do not have, even where transformers' default is one of them. */
function requireV3(fields: Fields, hiddenSize: number): void {
  const isSet = (key: string, value: boolean, why: string) => {
    if (fields.boolean(key) !== value) fields.fail(key, `${value} (${why})`);
  };
  isSet('relative_attention', true, 'attention without relative positions is not supported');
  isSet('share_att_key', true, 'projections of their own for the relative positions are not supported');
  isSet('position_biased_input', false, 'learned positions beside the relative ones are not supported');
  const given = fields.value('pos_att_type');
  const types = typeof given === 'string' ? given.toLowerCase().split('|') : given;
  const names = Array.isArray(types) ? types.map((type) => String(type).trim()).sort() : [];
  if (names.join() !== 'c2p,p2c') fields.fail('pos_att_type', 'p2c and c2p together');
  if (fields.string('norm_rel_ebd')?.trim().toLowerCase() !== 'layer_norm') {
    fields.fail('norm_rel_ebd', "'layer_norm' (relative positions without their norm are not supported)");
  }
  for (const key of ['hidden_act', 'pooler_hidden_act']) {
    if ((fields.string(key) ?? 'gelu') !== 'gelu')
      fields.fail(key, "'gelu'; other activations are not supported");
  }
  for (const key of ['embedding_size', 'pooler_hidden_size']) {
    if ((fields.integer(key) ?? hiddenSize) !== hiddenSize) fields.fail(key, `hidden_size (${hiddenSize})`);
  }
  // Dropout of hidden states, attention and head acts in training alone, where it is not applied (docs/reference/models.md).
  for (const key of ['hidden_dropout_prob', 'attention_probs_dropout_prob', 'pooler_dropout', 'cls_dropout'])
    fields.number(key);
  fields.boolean('legacy');
}

function json(config: DebertaConfig): JsonObject {
  // Token classifiers have their head's dropout under another key, and always a bias.
  const { classifier_dropout, token_classification_bias, ...common } = commonJson(config);
  return {
    ...common,
    intermediate_size: config.intermediateSize,
    num_attention_heads: config.numHeads,
    layer_norm_eps: config.normEps,
    relative_attention: true,
    share_att_key: true,
    position_biased_input: false,
    pos_att_type: ['p2c', 'c2p'],
    norm_rel_ebd: 'layer_norm',
    position_buckets: config.positionBuckets,
    max_relative_positions: config.maxRelativePositions,
    type_vocab_size: 0,
    hidden_act: 'gelu',
  };
}
