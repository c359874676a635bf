/** Rewards from a scorer of solutions: by steps, or for whole solutions. */
import { type Aggregation, aggregated, untilWrong } from '../eval/solving/aggregation.js';
import { stepsBy } from '../records/segment.js';
import type { Scorer } from '../scoring/scorer.js';
import type { SolutionReward, SourceReward } from './reward.js';

export interface StepRewardOptions {
  /** Name in metrics and samples. */
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
  scorer: Scorer,
  { name, aggregation, unread = 0, bySteps = true, untilWrong: cut = false }: StepRewardOptions,
): SolutionReward {
  const isOfSteps = bySteps && scorer.unit === 'step';
  const { segmentation } = scorer;
  return {
    name,
    segmentation,
    async score(given, signal) {
      // Steps are cut as the model was trained on them, not as the run cuts them.
      const solutions =
        segmentation === undefined
          ? given
          : given.map((own) => (own.turns ? own : { ...own, steps: stepsBy(own.text, segmentation) }));
      const places = solutions.flatMap(({ problem: of, ...own }, i) =>
        scorer.unit === 'outcome' || own.steps.length > 0
          ? [{ solution: { ...own, of, problem: of.problem }, i }]
          : [],
      );
      const asked = places.map(({ solution }) => solution);
      const found = await scorer.score(asked, { signal });
      if (!found || signal?.aborted) return undefined;
      const rewards: SourceReward[] = solutions.map(() => ({
        value: unread,
        ...(isOfSteps ? { steps: [unread] } : {}),
      }));
      found.forEach(({ scores, outcome }, at) => {
        // A step that the model could not read must not cost less than one that it found wrong.
        const known = isOfSteps
          ? scores.map((score) => score ?? unread)
          : scores.filter((score) => score !== null);
        const value = outcome ?? aggregated(cut ? untilWrong(known) : known, aggregation) ?? unread;
        rewards[(places[at] as { i: number }).i] = { value, ...(isOfSteps ? { steps: known } : {}) };
      });
      return rewards;
    },
  };
}
