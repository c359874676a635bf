/**
 * A logistic regression that predicts a solution's outcome from its length and termination alone: a baseline for every
 * outcome model, which might have learned no more.
 */

import { statesAnswer } from '../data/label-rules.js';
import { log1p } from '../native/elementary.js';
import type { StepRecord } from '../records/record.js';
import { fitLogistic } from './statistics/logistic.js';

type Solution = Pick<StepRecord, 'steps' | 'outcome'>;

/** Learns from solutions with an outcome; gives the probability that a solution is right. */
export function lengthClassifier(solutions: Iterable<Solution>): (solution: Solution) => number {
  const rows: number[][] = [];
  const labels: number[] = [];
  for (const solution of solutions) {
    if (solution.outcome === undefined) continue;
    rows.push(featuresOf(solution));
    labels.push(solution.outcome);
  }
  const probability = fitLogistic(rows, labels);
  return (solution) => probability(featuresOf(solution));
}

/** Characters, on a logarithmic scale and as such, steps, and whether the last step states an answer and ends a sentence. */
function featuresOf({ steps }: Solution): number[] {
  const characters = steps.reduce((sum, { text }) => sum + text.length, 0);
  const last = steps.at(-1)?.text ?? '';
  return [
    log1p(characters),
    characters,
    steps.length,
    log1p(last.length),
    statesAnswer(last) ? 1 : 0,
    /[.!]\s*$/.test(last) ? 1 : 0,
  ];
}
