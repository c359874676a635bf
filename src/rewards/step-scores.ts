/** Rewards by a model that scores steps, or whole solutions as their last step. */
import { type Aggregation, aggregated, untilWrong } from '../eval/solving/aggregation.js';
import type { SolutionScorer } from '../eval/solving/judging.js';
import type { StepScorer } from '../eval/step-scorer.js';
import type { SolutionReward, SourceReward } from './reward.js';

export interface StepRewardOptions {
  /** In metrics and samples. */
  readonly name: string;
  readonly aggregation: Aggregation;
  /** Reward of a solution without steps, as if it were one, and of a step that the model gives no score. Default 0. */
  readonly unread?: number;
  /**
   * Whether the scores of steps are rewards of steps too; false for a model of outcomes, whose only score is that of the
   * solution. Default true.
   */
  readonly bySteps?: boolean;
  /** Whether scores are put together up to the first below one half, that one included. Default false. */
  readonly untilWrong?: boolean;
}

export function stepScoreReward(
  scorer: StepScorer,
  { name, aggregation, unread = 0, bySteps = true, untilWrong: cut = false }: StepRewardOptions,
): SolutionReward {
  return {
    name,
    async score(solutions, signal) {
      const asked = solutions.map(({ problem, steps }) => ({ problem: problem.problem, steps }));
      const readable = asked.flatMap((solution, i) => (solution.steps.length > 0 ? [{ solution, i }] : []));
      const found = await scorer.score(
        readable.map(({ solution }) => solution),
        signal ? { signal } : {},
      );
      if (!found) return undefined;
      const rewards: SourceReward[] = solutions.map(() => ({
        value: unread,
        ...(bySteps ? { steps: [unread] } : {}),
      }));
      found.forEach(({ scores }, at) => {
        // A step that the model could not read must not cost less than one that it found wrong.
        const known = bySteps
          ? scores.map((score) => score ?? unread)
          : scores.filter((score) => score !== null);
        rewards[(readable[at] as { i: number }).i] = {
          value: aggregated(cut ? untilWrong(known) : known, aggregation) ?? unread,
          ...(bySteps ? { steps: known } : {}),
        };
      });
      return rewards;
    },
  };
}

/** Rewards by a model that scores the text of a whole solution. */
export function outcomeReward(
  scorer: SolutionScorer,
  { name, unread = 0 }: Pick<StepRewardOptions, 'name' | 'unread'>,
): SolutionReward {
  return {
    name,
    async score(solutions, signal) {
      const asked = solutions.map(({ problem, text, steps }, i) => ({
        problem: i,
        sample: 0,
        of: problem,
        text,
        steps,
      }));
      const found = await scorer.score(asked, signal);
      return signal?.aborted ? undefined : found.map((scores) => ({ value: scores.at(-1) ?? unread }));
    },
  };
}
