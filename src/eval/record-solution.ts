import type { StepRecord } from '../records/record.js';
import { readableStep } from '../records/turns.js';
import { type Solution, sampled } from '../scoring/scorer.js';

/** A record as a scorer sees it: its texts, and its reference solution and answer where it has them. */
export function recordSolution(record: StepRecord, index: number): Solution {
  const { problem, steps, gold_answer, gold_solution } = record;
  const texts = steps.map(readableStep);
  const of = {
    problem,
    answer: gold_answer ?? '',
    ...(gold_solution === undefined ? {} : { solution: gold_solution }),
  };
  const solution = sampled(of, { problem: index, sample: 0, text: texts.join('\n') }, texts);
  return record.turns ? { ...solution, turns: record } : solution;
}
