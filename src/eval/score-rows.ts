/** Step scores for a stream of solutions. */
import type { Row } from '../data/columns.js';
import { inBatches, type PlacedSolution } from './solution-stream.js';
import { type Aggregation, aggregated, scoresRead, untilWrong } from './solving/aggregation.js';
import type { StepScorer } from './step-scorer.js';

export interface ScoreRowsOptions {
  readonly aggregations: readonly Aggregation[];
  /** Aggregate the scores up to the first that is below one half, that one included. Default false. */
  readonly untilWrong?: boolean;
  readonly signal?: AbortSignal;
}

/** So many solutions at a time. */
const BATCH = 64;

/**
 * By solution a row for a file: its columns, `scores` by step (null where the scorer cannot read a step), and a column
 * `score_…` for each aggregation. A bad row has `scores: null` and the column `error`.
 */
export async function* scoredRows(
  solutions: AsyncIterable<PlacedSolution>,
  scorer: StepScorer,
  { aggregations, untilWrong: cut = false, signal }: ScoreRowsOptions,
): AsyncGenerator<Row> {
  for await (const batch of inBatches(solutions, BATCH)) {
    if (signal?.aborted) return;
    const good = batch.flatMap(({ solution }) => (solution ? [solution] : []));
    const found = good.length > 0 ? await scorer.score(good, signal ? { signal } : {}) : [];
    if (!found) return;
    const scores = found[Symbol.iterator]();
    for (const { row, solution, bad } of batch) {
      const { samples: _, ...columns } = row;
      if (!solution) {
        yield { ...columns, scores: null, error: bad };
        continue;
      }
      const own = (scores.next().value as (typeof found)[number]).scores;
      const known = scoresRead(own, scorer.scale);
      const counted = cut ? untilWrong(known) : known;
      yield {
        ...columns,
        ...('samples' in row ? { steps: solution.steps } : {}),
        scores: own,
        ...Object.fromEntries(aggregations.map((how) => [`score_${how}`, aggregated(counted, how)])),
      };
    }
  }
}
