// The algorithms of `method: ppo`. A new one is a row here and a test, and a function in `advantage.ts` where its advantages are new.
import type { Surrogate } from '../../objectives/ppo.js';
import type { LossType, RatioOf } from '../../train/policy/objective.js';

/**
 * Source of advantages: a critic, the group of a problem, the group for each source of rewards apart, the other
 * solutions of the group, returns from a token on, the other solutions apart for outcomes and for the rewards of
 * tokens, or the same turn of the group's episodes.
 */
export type AdvantageOf =
  | 'critic'
  | 'group'
  | 'turns'
  | 'group_apart'
  | 'leave_one_out'
  | 'returns'
  | 'process';

export interface OnlineAlgorithm {
  readonly ratio: RatioOf;
  readonly advantage: AdvantageOf;
  /** Default place of the KL penalty. */
  readonly klIn: 'reward' | 'loss';
  /** Whether γ and λ of the critic go from turn to turn, and not from token to token. */
  readonly byTurn?: true;
  /** Whether `whiten_advantages` is read. */
  readonly whitens?: true;
  /** Default limits of the ratio, down and up. Default 0.2 each. */
  readonly clip?: readonly [low: number, high: number];
  /** The loss of ratios and advantages. Default `clip`. */
  readonly surrogate?: Surrogate;
  /** The weight of a token. Default `dapo`. */
  readonly lossType?: LossType;
  /** Default number of times that a group of equal rewards is drawn again. Default 0. */
  readonly resample?: number;
}

export const algorithms = {
  /** arXiv 1707.06347 */
  ppo: { ratio: 'token', advantage: 'critic', klIn: 'reward', whitens: true },
  /** `ppo` with turns as the actions: all tokens of a turn have its advantage. */
  turn_ppo: { ratio: 'token', advantage: 'critic', byTurn: true, klIn: 'reward', whitens: true },
  /** arXiv 2402.03300 */
  grpo: { ratio: 'token', advantage: 'group', klIn: 'loss' },
  /** arXiv 2503.14476; the clip is the paper's, and so is that groups with nothing to compare are drawn again. */
  dapo: { ratio: 'token', advantage: 'group', klIn: 'loss', clip: [0.2, 0.28], resample: 3 },
  /** arXiv 2503.20783 */
  dr_grpo: { ratio: 'token', advantage: 'group', klIn: 'loss', lossType: 'dr_grpo' },
  /** arXiv 2506.13585, without a lower bound, as there; the upper one is ScaleRL's (arXiv 2510.13786), a ratio of 5. */
  cispo: { ratio: 'token', advantage: 'group', klIn: 'loss', surrogate: 'cispo', clip: [1, 4] },
  /** arXiv 2511.20347 */
  sapo: { ratio: 'token', advantage: 'group', klIn: 'loss', surrogate: 'sapo', lossType: 'grpo' },
  /** Returns from each turn on, compared with those of the same turn of the group's other episodes. */
  turn_grpo: { ratio: 'token', advantage: 'turns', klIn: 'loss' },
  /** arXiv 2601.05242 */
  gdpo: { ratio: 'token', advantage: 'group_apart', klIn: 'loss' },
  /** arXiv 2402.14740 */
  rloo: { ratio: 'answer', advantage: 'leave_one_out', klIn: 'reward' },
  /** arXiv 2501.03262 */
  reinforce_pp: { ratio: 'token', advantage: 'returns', klIn: 'reward', whitens: true },
  /** arXiv 2507.18071 */
  gspo: { ratio: 'answer_mean', advantage: 'group', klIn: 'loss', clip: [3e-4, 4e-4] },
  /** arXiv 2502.01456 */
  prime: { ratio: 'token', advantage: 'process', klIn: 'reward', whitens: true },
} as const satisfies Readonly<Record<string, OnlineAlgorithm>>;

export type Algorithm = keyof typeof algorithms;

export const ALGORITHMS = Object.keys(algorithms) as [Algorithm, ...Algorithm[]];

export function algorithmOf({ algorithm }: { readonly algorithm: Algorithm }): OnlineAlgorithm {
  return algorithms[algorithm];
}

/** Whether values are learned: the other algorithms compare rewards with each other. */
export function hasCritic(settings: { readonly algorithm: Algorithm }): boolean {
  return algorithmOf(settings).advantage === 'critic';
}

/** Whether advantages are differences between the solutions of a problem. */
export function comparesGroups(settings: {
  readonly algorithm: Algorithm;
  readonly group_baseline: boolean;
}): boolean {
  const { advantage } = algorithmOf(settings);
  return advantage === 'returns' ? settings.group_baseline : advantage !== 'critic';
}
