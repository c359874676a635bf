/**
 * An architecture: everything that is particular to the models of one family, in one object. A file of this folder
 * holds one, `table.ts` names them all, and nothing else in the package asks which model it has.
 */
import { z } from 'zod';
import type { Parameter } from '../autograd/parameters.js';
import type { RelativePositions } from '../ops/disentangled-attention.js';
import type { Routing } from '../ops/experts.js';
import type { Projection } from '../ops/gemm.js';
import type { HeadNorms } from '../ops/norm.js';
import type { RecurrentSequences } from '../ops/recurrence.js';
import type { Rotary } from '../ops/rope.js';
import type { DType, Tensor } from '../runtime/tensor.js';
import type { Fields } from '../weights/fields.js';
import type { JsonObject } from '../weights/json.js';
import type { ModuleSpec } from '../weights/modules.js';
import type { ModelConfig } from './config.js';

export interface Architecture<Config extends ModelConfig = ModelConfig> {
  /** Values of `model_type` in config.json. */
  readonly modelTypes: readonly string[];
  /** Keys of a new model in a recipe (`model.base.init`), with the names of config.json. */
  readonly init: NewModelSchema;
  /** Contradictions between keys of a valid `init`. */
  initConflicts(init: NewModel): readonly InitConflict[];
  /** Keys of config.json that a recipe leaves out, for a valid `init`. */
  initDefaults?(init: NewModel): JsonObject;

  /**
   * Reads config.json; asks `fields` for every key that it knows.
   *
   * @throws WeightsError that names the key
   */
  parse(fields: Fields, modelType: string): Config;
  /** config.json as transformers writes it; keys of `config.source` that do not concern the maths are kept. */
  json(config: Config): JsonObject;

  /** Every module with weights, in the order of the forward. */
  modules(config: Config): readonly ModuleSpec[];
  /** Names of weights that older checkpoints hold though they can be computed. */
  readonly computed?: RegExp;
  /** Bytes of one token in the layers, with activations of `bytes` bytes and LoRA pairs of `rank` (0: none) on every linear module. */
  memory(config: Config, options: { readonly bytes: number; readonly rank: number }): LayerMemory;

  /** Tokens see those after them too: nothing can be generated, cached or branched, and each prefix is a sequence of its own. */
  readonly bidirectional?: boolean;
  /**
   * The classifier of classes with a head for sequences or tokens. Default: `score`, which reads the last token of a
   * sequence.
   */
  readonly classifier?: Classifier;

  /** The attention of each layer, in order, which determines the shape of a cache. */
  keyValues(config: Config): readonly KeyValues[];
  /** The states of each layer that has some instead, as it leaves them for later tokens. Default: no layer has any. */
  states?(config: Config): readonly (RecurrentStates | undefined)[];
  /** Constants of the forward that are not weights, by name, for positions 0 … `positions` − 1. */
  constants?(config: Config, positions: number): Readonly<Record<string, Constant>>;
  /** Token ids to the input of the first layer. */
  embed(forward: Forward, config: Config): Stream;
  /** One layer. Runs again in the backward under gradient checkpointing, so it depends on its arguments alone. */
  layer(forward: Forward, config: Config, layer: number, stream: Stream): Stream;
  /** The output of the last layer to the hidden states that heads read, [T, outputSize]. */
  finish(forward: Forward, config: Config, stream: Stream): Tensor;
}

/** The classification head of a family. */
export interface Classifier {
  /** Name of the module that makes the outputs. */
  readonly module: string;
  /** The token that represents a sequence. */
  readonly reads: 'first' | 'last';
  /** Computed on the hidden states of these tokens, [B, outputSize], before that module. */
  pool?(x: Tensor, project: (x: Tensor, module: string) => Tensor): Tensor;
}

/**
 * The tensors between layers, each [T, hidden]: one tensor x, or [delta, residual] with x = delta + residual, added inside the
 * next norm, whose backward then adds both gradients.
 */
export type Stream = readonly Tensor[];

/** Input of an architecture's forward: the tokens, the weights of the role, and attention. */
export interface Forward {
  /** i32 [T] */
  readonly ids: Tensor;
  /** i32 [T]: position of each token in its sequence. */
  readonly positions: Tensor;
  /** Dtype of activations. */
  readonly dtype: DType;
  /** A weight by its name. */
  weight(name: string): Parameter;
  /** A tensor of `Architecture.constants`. */
  constant(name: string): Tensor;
  /** A linear module: weight, bias, LoRA pair and dropout. */
  projection(module: string): Projection;
  /** x [T, in] → [T, out] through a linear module; `rows` are those of x where they are not the tokens. */
  project(x: Tensor, module: string, rows?: ProjectedRows): Tensor;
  /**
   * residual + `project`: one tensor, added in the same launch, where nothing is differentiable, else the two of them. A stream
   * has the same number of tensors in every layer and after each run of it.
   */
  projectOnto(residual: Tensor, x: Tensor, module: string): Stream;
  /** Gives tokens to the k experts of their largest logits [T, E], see `ops/experts.ts`. */
  route(logits: Tensor, k: number, normalise: boolean): Routed;
  /** Attention of one layer. The caller of the forward decides where keys and values of earlier tokens come from. */
  attend(q: Tensor, k: Tensor, v: Tensor, options: AttendOptions): Tensor;
  /** The sequences of the tokens, for a layer that goes through them; the caller decides likewise what they continue. */
  recurrence(layer: number): RecurrentSequences;
}

interface Routed {
  readonly routing: Routing;
  /** `project` of rows in its order, each through the module of its expert; `of` is the name of all, see `ExpertPlace`. */
  project(x: Tensor, of: string): Tensor;
}

/** The keys of each row's dropout mask, i32 [R] both. */
interface ProjectedRows {
  readonly rowIds: Tensor;
  readonly positions: Tensor;
}

export interface AttendOptions {
  readonly layer: number;
  /** q is [T, heads·headDim], k and v [T, keyValueHeads·headDim]; scores are scaled by 1/√headDim. */
  readonly headDim: number;
  /** Rotation of q and k before attention; undefined: none. */
  readonly rotary?: Rotary | undefined;
  /** RMSNorm of each head of q and k before the rotation, which must be there; undefined: none. */
  readonly norms?: HeadNorms | undefined;
  /** Each token and the `window − 1` tokens before it are visible to it; undefined: all before it. */
  readonly window?: number | undefined;
  /** Every token sees every other, with biases by their distance; scores are scaled by 1/√(3·headDim). */
  readonly relative?: RelativePositions | undefined;
}

/** Keys and values of one layer, as its `attend` gets them. */
export interface KeyValues {
  /** 0: the layer does not attend. */
  readonly heads: number;
  readonly headDim: number;
  /** See `AttendOptions`. */
  readonly window?: number | undefined;
}

/** Shapes of the states of one sequence in one layer. */
export interface RecurrentStates {
  /** [taps − 1, C], as the activations. */
  readonly convolution: readonly number[];
  /** [H, K, V], f32. */
  readonly delta: readonly number[];
}

/** Bytes of one token, but for `fixed`. */
export interface LayerMemory {
  /** Saved by one layer for its backward whatever the number of tokens. Default 0. */
  readonly fixed?: number;
  /** Tensors passed between two layers. */
  readonly stream: number;
  /** Saved by one layer for its backward. */
  readonly saved: number;
  /** Held in addition by the backward of one layer. */
  readonly backward: number;
}

export interface Constant {
  readonly values: Float32Array | Int32Array;
  readonly shape: readonly number[];
}

/** The checked section `model.base.init` of a recipe. */
export type NewModel = { readonly model_type: string } & Readonly<Record<string, unknown>>;

export type NewModelSchema = z.ZodObject<{ model_type: z.ZodType<string> }, z.core.$strict>;

export interface InitConflict {
  readonly key: string;
  readonly message: string;
}

/** The keys of `init` that every architecture has. */
export const NEW_MODEL = {
  hidden_size: z.int().min(1).describe('Width of the residual stream.'),
  num_hidden_layers: z.int().min(1).describe('Number of blocks.'),
  num_attention_heads: z.int().min(1).describe('Number of query heads.'),
  max_position_embeddings: z.int().min(1).default(2048).describe('Longest sequence the model is meant for.'),
  tie_word_embeddings: z
    .boolean()
    .default(true)
    .describe('Share the embedding with the output head; saves vocabulary × hidden_size parameters.'),
} as const;
