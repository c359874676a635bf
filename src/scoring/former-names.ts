// What scored and judged under other names, for one release.
import { classifierScorer } from './classifier.js';
import { labelFile } from './files.js';
import { oracleScorer } from './oracle.js';
import type { Scorer, Solution, SolutionScores } from './scorer.js';

/** @deprecated Use `oracleScorer`. */
export const oracleJudge = oracleScorer;
/** @deprecated Use `labelFile`. */
export const fileJudge = labelFile;
/** @deprecated Use `classifierScorer`. */
export const rewardModel = classifierScorer;
/** @deprecated A `Scorer` of steps has scores and verdicts. */
export const stepScores = (scorer: Scorer, own: Pick<Scorer, 'name'> & Partial<Scorer>): Scorer => ({
  ...scorer,
  ...own,
});
/** @deprecated Use `Scorer`. */
export type StepScorer = Scorer;
/** @deprecated Use `Scorer`. */
export type SolutionScorer = Scorer;
/** @deprecated Use `Scorer`. */
export type StepJudge = Scorer;
/** @deprecated Use `Solution`. */
export type StepSolution = Solution;
/** @deprecated Use `SolutionScores`. */
export type StepScores = SolutionScores;
