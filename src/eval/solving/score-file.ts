// Scores that another program made, from a file with a row for each sample.
import { dataFiles } from '../../data/files.js';
import { objectRows } from '../../data/rows.js';
import { DataError } from '../../files/data-error.js';
import type { SolutionScorer } from './judging.js';

/**
 * @param file rows with the `problem` and `sample` of samples.jsonl and a number, or a list with one for each step, in `column`
 * @throws DataError with the line of a row without them; when asked, for a sample that has no row
 */
export async function scoreFile(file: string, column: string): Promise<SolutionScorer> {
  const scores = new Map<string, readonly number[]>();
  for (const path of await dataFiles(file))
    for await (const { row, position } of objectRows(path)) {
      const score = row[column];
      const list = Array.isArray(score) ? score : [score];
      const places = [row.problem, row.sample].map(Number);
      if (!places.every((place) => Number.isSafeInteger(place) && place >= 0))
        throw new DataError(
          'row',
          "expected whole numbers as 'problem' and 'sample', as samples.jsonl has them",
          position,
        );
      if (!list.every((value) => typeof value === 'number' && Number.isFinite(value)))
        throw new DataError(
          'row',
          `column '${column}' should hold a number or a list of numbers; the columns are ${Object.keys(row).join(', ')}`,
          position,
        );
      scores.set(places.join(' '), list);
    }
  return {
    name: `${file} (${column})`,
    score: async (solutions) =>
      solutions.map(({ problem, sample }) => {
        const found = scores.get(`${problem} ${sample}`);
        if (found) return found;
        throw new DataError('file', `there is no score of sample ${sample} of problem ${problem}`, { file });
      }),
  };
}
