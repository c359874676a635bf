/** The reward of a solution: one interface for rules, reward models and a user's own function. */

import type { Problem } from '../data/benchmarks/problem.js';
import type { Segmentation } from '../records/segment.js';
import type { Turns } from '../records/turns.js';

/** A solution as its rewards see it. */
export interface RewardedSolution {
  readonly problem: Problem;
  readonly text: string;
  /** The paragraphs of the text, or its lines where it has no blank one. */
  readonly steps: readonly string[];
  /** Number of drawn tokens. */
  readonly tokens: number;
  /** Whether it was cut off at the most tokens. */
  readonly truncated: boolean;
  /** The conversation of an episode, whose turns are the steps, and the rewards that its environment gave them. */
  readonly turns?: Turns | undefined;
  readonly turnRewards?: readonly (number | null)[] | undefined;
  /** The beginning that its prompt wrote: the mark that opens reasoning (`<think>`), which it has to end before its answer. */
  readonly opened?: string | undefined;
}

/** The reward of a solution and, from a source that judges steps, of each step. */
export interface SourceReward {
  readonly value: number;
  readonly steps?: readonly number[];
}

export interface SolutionReward {
  /** Name in metrics and samples. */
  readonly name: string;
  /** It says how a solution is written, not whether it is right: its length or form. Default false. */
  readonly isShape?: boolean;
  /** The rule by which it takes a text into steps. Default: as `RewardedSolution.steps`. */
  readonly segmentation?: Segmentation | undefined;
  /** Finite rewards by solution; undefined if the signal stopped it. */
  score(
    solutions: readonly RewardedSolution[],
    signal?: AbortSignal,
  ): Promise<readonly SourceReward[] | undefined>;
  /** Frees a model that it loaded. */
  dispose?(): void;
}
