import type { StepRecord } from '../records/record.js';
import { readableStep } from '../records/turns.js';
import { type Scorer, type Solution, type SolutionScores, sampled } from '../scoring/scorer.js';

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

/** Solutions scored at a time, between reports of progress. */
const BATCH = 64;

/** The scores of records, one record after another. They end early where the signal fires. */
export async function* recordScores(
  scorer: Scorer,
  records: readonly StepRecord[],
  signal: AbortSignal | undefined,
  onProgress?: (done: number, total: number) => void,
): AsyncGenerator<{ readonly record: StepRecord; readonly index: number; readonly own: SolutionScores }> {
  for (let at = 0; at < records.length; at += BATCH) {
    const part = records.slice(at, at + BATCH);
    const asked = part.map((record, i) => recordSolution(record, at + i));
    const found = await scorer.score(asked, { signal });
    if (!found) return;
    for (const [i, record] of part.entries())
      yield { record, index: at + i, own: found[i] ?? { scores: [] } };
    onProgress?.(at + part.length, records.length);
  }
}
