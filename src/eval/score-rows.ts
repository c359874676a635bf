/** Step scores for a stream of solutions. */
import type { Row } from '../data/columns.js';
import { RunError } from '../run/error.js';
import { maybeUnsure, numbersOf, type Scorer, type SolutionScores, verdictWords } from '../scoring/scorer.js';
import { unlikeSentence } from '../scoring/unlike-training.js';
import { inBatches, type PlacedSolution } from './solution-stream.js';
import { type Aggregation, aggregated, untilWrong } from './solving/aggregation.js';

export interface ScoreRowsOptions {
  readonly aggregations: readonly Aggregation[];
  /** Aggregate the scores up to the first that is below one half, that one included. Default false. */
  readonly untilWrong?: boolean;
  readonly signal?: AbortSignal;
  /** Called for a solution in which something is unlike all that the scorer learned from. */
  readonly onUnlike?: () => void;
}

/** Solutions scored at a time. */
const BATCH = 64;

/**
 * A row of the output file for each solution: its columns, `scores` by step (null where the scorer cannot read a step),
 * `verdicts` by step for a scorer that may be unsure, `reasons` by step for one that gives them, `warnings` of what is unlike all that it learned from, and a column `score_…` for each aggregation. A bad row has `scores: null` and the column `error`.
 *
 * @throws RunError for a row that has such a column already
 */
export async function* scoredRows(
  solutions: AsyncIterable<PlacedSolution>,
  scorer: Scorer,
  { aggregations, untilWrong: cut = false, signal, onUnlike }: ScoreRowsOptions,
): AsyncGenerator<Row> {
  for await (const batch of inBatches(solutions, BATCH)) {
    if (signal?.aborted) return;
    const good = batch.flatMap(({ solution }) => (solution ? [solution] : []));
    const found = good.length > 0 ? await scorer.score(good, { signal }) : [];
    if (!found) return;
    const scores = found[Symbol.iterator]();
    for (const { row, where, solution, bad } of batch) {
      const { samples: _, ...columns } = row;
      if (!solution) {
        yield { ...columns, ...added({ scores: null, error: bad }, columns, where) };
        continue;
      }
      const own = scores.next().value as SolutionScores;
      const known = numbersOf(scorer, own);
      const { unlike } = own;
      if (unlike) onUnlike?.();
      const counted = cut ? untilWrong(known) : known;
      const result = {
        scores: own.scores,
        ...(maybeUnsure(scorer) ? { verdicts: verdictWords(scorer, own) } : {}),
        ...(own.reasons ? { reasons: own.reasons } : {}),
        ...(unlike ? { warnings: [unlikeSentence(unlike)] } : {}),
        ...Object.fromEntries(aggregations.map((how) => [`score_${how}`, aggregated(counted, how)])),
      };
      yield {
        ...columns,
        ...('samples' in row ? { steps: solution.steps } : {}),
        ...added(result, columns, where),
      };
    }
  }
}

/** The columns that a row gains; one of that name, such as the scores of another model, would be lost. */
function added<Columns extends object>(result: Columns, columns: Row, where: string): Columns {
  const taken = Object.keys(result).find((name) => Object.hasOwn(columns, name));
  if (taken === undefined) return result;
  throw new RunError(
    `${where} has a column '${taken}' already, which would be lost under the scores of this model; rename it, or remove it`,
  );
}
