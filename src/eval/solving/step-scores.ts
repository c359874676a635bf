// Scorers of steps, such as verdict models and reward networks, as reward models and judges of samples.
import type { StepScorer } from '../step-scorer.js';
import { scoresRead } from './aggregation.js';
import type { Solution, SolutionScorer, StepJudge } from './judging.js';

export interface StepScoreOptions {
  /** For the report. */
  readonly name: string;
  /** A step is right from this score on. Default: 0.5 of a probability, 0 of a reward. */
  readonly threshold?: number;
}

/** Each step's score (`scoresRead`), and by it the step's verdict, which a step that the scorer cannot read does not have. */
export function stepScores(
  scorer: StepScorer,
  { name, threshold = scorer.scale === 'probability' ? 0.5 : 0 }: StepScoreOptions,
): SolutionScorer & StepJudge {
  const scored = async (solutions: readonly Solution[], signal?: AbortSignal) => {
    const asked = solutions.map(({ of, steps }) => ({ problem: of.problem, steps }));
    const found = await scorer.score(asked, signal ? { signal } : {});
    // Whoever gave the signal takes no answer.
    return found?.map(({ scores }) => scores) ?? solutions.map(({ steps }) => steps.map(() => null));
  };
  return {
    name,
    async score(solutions, signal) {
      const scores = await scored(solutions, signal);
      return scores.map((of) => scoresRead(of, scorer.scale));
    },
    async judge(solutions, signal) {
      const scores = await scored(solutions, signal);
      return scores.map((of) => of.map((score) => (score === null ? null : score >= threshold ? 1 : 0)));
    },
  };
}
