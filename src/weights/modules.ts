/** The modules of a model by their Hugging Face names, with the shapes and first values of their weights. */

import { grouped } from '../native/grouped.js';

/** Distribution of the first values of a weight. */
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
  /** Likewise, and never quantised: the module that chooses the experts of a token. */
  | 'router'
  /** A linear module between the trunk and a head for sequences, which `modules_to_save` may keep whole. */
  | 'pooler'
  | 'norm'
  /** The taps of a convolution, [channels, 1, taps]. */
  | 'convolution'
  /** The language-model head. Without weights of its own where it is tied to the embedding. */
  | 'head'
  /** The head of a classification model. */
  | 'score';

/** Max experts of a layer; released models have hundreds. */
export const MAX_EXPERTS = 4096;

/** Position of a module among the experts of a layer, which read different rows in one product. */
export interface ExpertPlace {
  /** Name of the joint module, such as `model.layers.0.mlp.experts.up_proj`, whose `….weight` is [count, out, in]. */
  readonly of: string;
  readonly index: number;
  readonly count: number;
  /** Number of experts that each token is routed to. */
  readonly perToken: number;
  /**
   * The tensor [count, parts·out, in] in which a checkpoint may hold the weights of all experts, and which of the `parts` of its
   * rows this is. Undefined: each weight always has a tensor of its own.
   */
  readonly stored?: { readonly name: string; readonly part: number; readonly parts: number };
}

export interface WeightSpec {
  /** Name, such as `model.layers.0.self_attn.q_proj.weight`. */
  readonly name: string;
  /** A linear weight is [out, in], an embedding [rows, width], a bias or the weight of a norm [width]. */
  readonly shape: readonly number[];
  /** Kind of the module that the weight belongs to. */
  readonly kind: ModuleKind;
  readonly init: Initializer;
  /**
   * Number added to each value of a checkpoint: the norms of some models are stored as their distance from 1. Default
   * 0.
   */
  readonly offset?: number;
  readonly expert?: ExpertPlace;
}

export interface ModuleSpec {
  /** Name, such as `model.layers.0.self_attn.q_proj`. */
  readonly name: string;
  readonly kind: ModuleKind;
  /** Weight and bias; empty for a tied head. */
  readonly weights: readonly WeightSpec[];
  /** Shape of the weight, also where it is tied: [out, in] for a linear module. */
  readonly shape: readonly number[];
  readonly expert?: ExpertPlace;
  /** PEFT knows it as a parameter alone: what targets all linear modules, or their last names, leaves it out. */
  readonly isParameter?: boolean;
}

/** A module with a weight called `weight` that starts from `init`, and where asked a `bias` of zeros, one for each row. */
export function moduleSpec(
  kind: ModuleKind,
  name: string,
  shape: readonly number[],
  init: Initializer,
  {
    bias = false,
    isParameter,
    ...own
  }: { readonly bias?: boolean } & Pick<ModuleSpec, 'isParameter'> &
    Pick<WeightSpec, 'offset' | 'expert'> = {},
): ModuleSpec {
  const weights: WeightSpec[] = [{ name: `${name}.weight`, shape, kind, init, ...own }];
  if (bias) weights.push({ name: `${name}.bias`, shape: shape.slice(0, 1), kind, init: { kind: 'zero' } });
  return {
    name,
    kind,
    weights,
    shape,
    ...(own.expert ? { expert: own.expert } : {}),
    ...(isParameter ? { isParameter } : {}),
  };
}

/** Name of the language-model head's weight: its own, or the embedding's; undefined without such a head. */
export function headWeight(modules: readonly ModuleSpec[]): string | undefined {
  const head = modules.find(({ kind }) => kind === 'head');
  const tied = modules.find(({ kind }) => kind === 'tiedEmbedding');
  return (head?.weights[0] ?? tied?.weights[0])?.name;
}

/** Items of experts by their joint weight, both in order; items without an expert are left out. */
export function ofExperts<Item extends { readonly expert?: ExpertPlace }>(
  items: readonly Item[],
): ReadonlyMap<string, readonly Item[]> {
  return grouped(items, ({ expert }) => expert?.of);
}
