/** The modules of a model by their Hugging Face names, with the shapes and first values of their weights. */

/** How the first values of a weight are drawn. */
export type Initializer =
  | { readonly kind: 'zero' }
  | { readonly kind: 'one' }
  /** Uniform in [−bound, bound] */
  | { readonly kind: 'uniform'; readonly bound: number }
  /** Normal with mean 0 */
  | { readonly kind: 'normal'; readonly deviation: number };

export type ModuleKind =
  /** Indexed by row. */
  | 'embedding'
  /** An embedding whose weight is that of the head, too. */
  | 'tiedEmbedding'
  /** A module that LoRA may target. */
  | 'linear'
  /** A linear module between the trunk and a head for sequences, which `modules_to_save` may keep whole. */
  | 'pooler'
  | 'norm'
  /** The language-model head. Without weights of its own where it is tied to the embedding. */
  | 'head'
  /** The head of a classification model. */
  | 'score';

export interface WeightSpec {
  /** Such as `model.layers.0.self_attn.q_proj.weight` */
  readonly name: string;
  /** A linear weight is [out, in], an embedding [rows, width], a bias or the weight of a norm [width]. */
  readonly shape: readonly number[];
  /** Of the module that it belongs to. */
  readonly kind: ModuleKind;
  readonly init: Initializer;
  /** What is added to each value of a checkpoint: the norms of some models are stored as their distance from 1. Default 0. */
  readonly offset?: number;
}

export interface ModuleSpec {
  /** Such as `model.layers.0.self_attn.q_proj` */
  readonly name: string;
  readonly kind: ModuleKind;
  /** Weight and bias; empty for a tied head. */
  readonly weights: readonly WeightSpec[];
  /** Of the weight, also where it is tied: [out, in] of a linear module. */
  readonly shape: readonly number[];
}

/** A module with a weight called `weight` that starts from `init`, and where asked a `bias` of zeros, one for each row. */
export function moduleSpec(
  kind: ModuleKind,
  name: string,
  shape: readonly number[],
  init: Initializer,
  { bias = false, offset }: { readonly bias?: boolean; readonly offset?: number } = {},
): ModuleSpec {
  const own = { name: `${name}.weight`, shape, kind, init };
  const weights: WeightSpec[] = [offset === undefined ? own : { ...own, offset }];
  if (bias) weights.push({ name: `${name}.bias`, shape: shape.slice(0, 1), kind, init: { kind: 'zero' } });
  return { name, kind, weights, shape };
}

/** Name of the language-model head's weight: its own, or the embedding's; undefined without such a head. */
export function headWeight(modules: readonly ModuleSpec[]): string | undefined {
  const head = modules.find(({ kind }) => kind === 'head');
  const tied = modules.find(({ kind }) => kind === 'tiedEmbedding');
  return (head?.weights[0] ?? tied?.weights[0])?.name;
}
