/** The solutions of a file one by one, good or bad, in batches for a model. */
import { BadRow } from '../data/bad-row.js';
import { dataFiles } from '../data/files.js';
import { objectRows, type PlacedRow } from '../data/rows.js';
import { type RowSolution, type SolutionColumns, solutionsOf } from '../data/solution-rows.js';
import { DataError } from '../files/data-error.js';

export interface PlacedSolution {
  readonly row: PlacedRow['row'];
  /** `out.jsonl, line 3`. */
  readonly where: string;
  /** Index from 0 over all files. */
  readonly index: number;
  /** Absent of a bad row. */
  readonly solution?: RowSolution;
  /** The defect of the row, in one sentence. */
  readonly bad?: string;
}

export interface SolutionStreamOptions {
  readonly columns?: SolutionColumns;
  /** Treatment of a row without a solution: an error, or counted and passed on as bad. Absent: an error, for a command without the choice. */
  readonly onBadRow?: 'error' | 'skip';
  /** Pass over so many solutions: they are done. */
  readonly skip?: number;
}

/** @throws DataError for a file that cannot be read; with file and line, for a row without a solution */
export async function* solutionStream(
  path: string,
  { columns = {}, onBadRow, skip = 0 }: SolutionStreamOptions = {},
): AsyncGenerator<PlacedSolution> {
  let index = 0;
  for (const file of await dataFiles(path))
    for await (const { row, where, position } of objectRows(file)) {
      let found: Omit<PlacedSolution, 'index' | 'row' | 'where'>[];
      try {
        found = solutionsOf(row, columns).map((solution) => ({ solution }));
      } catch (error) {
        if (!(error instanceof BadRow)) throw error;
        if (onBadRow !== 'skip') {
          const choice = onBadRow === undefined ? 'remove it' : 'pass it over with --on-bad-row skip';
          throw new DataError('row', `${error.message}; correct the row, or ${choice}`, position);
        }
        found = [{ bad: error.message }];
      }
      for (const each of found) {
        if (index >= skip) yield { row, where, index, ...each };
        index++;
      }
    }
}

/** Items in lists of up to `size`. */
export async function* inBatches<T>(items: AsyncIterable<T>, size: number): AsyncGenerator<T[]> {
  let batch: T[] = [];
  for await (const item of items) {
    batch.push(item);
    if (batch.length < size) continue;
    yield batch;
    batch = [];
  }
  if (batch.length > 0) yield batch;
}
