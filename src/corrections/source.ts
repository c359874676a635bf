/** The right solutions of a configuration's data, as a stream. */
import type { DataConfig } from '../config/schema.js';
import type { LoadReport } from '../data/load.js';
import type { WordProblem } from '../data/problems/problem.js';
import { wordProblemRecords } from '../data/problems/records.js';
import type { Part } from '../data/split.js';
import type { StepRecord } from '../records/record.js';
import { dividedRecords } from '../run/parts.js';
import { type SourceSolution, sourceSolution } from './solution.js';

export interface DividedSolution {
  readonly part: Part;
  readonly solution: SourceSolution;
}

/**
 * Right solutions in the order of the data. Others are left out and counted.
 *
 * @param leftOut is called with the reason
 * @throws DataError where a file cannot be used
 */
export async function* sourceSolutions(
  data: DataConfig,
  leftOut: (reason: string) => void,
  reports: LoadReport[] = [],
): AsyncGenerator<DividedSolution> {
  let number = 0;
  for await (const { part, record, word } of records(data, reports)) {
    const solution = sourceSolution(record, number++, word);
    if (typeof solution === 'string') leftOut(solution);
    else yield { part, solution };
  }
}

async function* records(
  data: DataConfig,
  reports: LoadReport[],
): AsyncGenerator<{ readonly part: Part; readonly record: StepRecord; readonly word?: WordProblem }> {
  if (data.source !== 'word_problems') {
    yield* dividedRecords(data, reports);
    return;
  }
  const { seed, split, word_problems: options } = data;
  // A drill has no story to solve.
  for (const { part, record, problem } of wordProblemRecords({ ...options, seed, split }))
    if (problem) yield { part, record, word: problem };
}
