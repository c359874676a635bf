// Scores and labels that another program made.
import { isDeepStrictEqual } from 'node:util';
import { dataFiles } from '../data/files.js';
import { loadRecords } from '../data/load.js';
import { objectRows } from '../data/rows.js';
import { badFile, DataError } from '../files/data-error.js';
import { shown } from '../native/shown.js';
import type { StepLabel } from '../records/record.js';
import { problemText } from '../records/same-text.js';
import { refuseTurns } from '../records/turns.js';
import { warnOnce } from '../terminal/log.js';
import { type Scorer, scorer } from './scorer.js';

/** Scores by sample where the rows are numbered as samples.jsonl has them, or a column is named; else labels of steps. */
export async function fileScorer(file: string, column?: string): Promise<Scorer> {
  if (column !== undefined) return scoreFile(file, column);
  for (const path of await dataFiles(file))
    for await (const { row } of objectRows(path))
      return 'sample' in row && !('steps' in row) ? scoreFile(file, 'score') : labelFile(file);
  throw badFile('there are no rows in it', { file });
}

/**
 * @param file rows with the `problem` and `sample` of samples.jsonl and a number, or a list with one for each step, in `column`, and
 *   the `text` of the sample where the scores must be of that
 * @throws DataError with the line of a row without them; when asked, for a sample that has no row, or another text in it
 */
export async function scoreFile(file: string, column: string): Promise<Scorer> {
  const scores = new Map<string, readonly number[]>();
  const texts = new Map<string, string>();
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
      const key = places.join(' ');
      const other = scores.get(key);
      if (other && !isDeepStrictEqual(other, list))
        throw new DataError(
          'row',
          `sample ${places[1]} of problem ${places[0]} has ${shown(list)} here and ${shown(other)} in an earlier row; leave one`,
          position,
        );
      scores.set(key, list);
      if (typeof row.text === 'string') texts.set(key, row.text.trim());
    }
  if (texts.size === 0)
    warnOnce(
      `${file}: no row has the text of its sample, so that nothing shows whether the scores are of these samples; keep the column text of samples.jsonl`,
    );
  const within = [...scores.values()].every((list) => list.every((score) => score >= 0 && score <= 1));
  return scorer({
    name: `${file} (${column})`,
    ...(within ? {} : { scale: 'reward', threshold: Number.NaN }),
    score: async (solutions) =>
      solutions.map(({ place, steps, text = steps.join('\n') }) => {
        const key = place && `${place.problem} ${place.sample}`;
        const found = key === undefined ? undefined : scores.get(key);
        const scored = key === undefined ? undefined : texts.get(key);
        if (found && (scored === undefined || scored === text.trim())) return { scores: found };
        if (found)
          throw badFile(
            `sample ${place?.sample} of problem ${place?.problem} has the text ${shown(scored)} there, and ${shown(text.trim())} here: these are the scores of other samples`,
            { file },
          );
        const which = place
          ? `sample ${place.sample} of problem ${place.problem}`
          : 'a solution without a number';
        throw badFile(`there is no score of ${which}`, { file });
      }),
  });
}

/** The mark of a step in a file, and its probability where that is finer. */
interface Marked {
  readonly label: StepLabel;
  readonly score: number | undefined;
}

/**
 * The labels of records (any layout of data) for solutions with the same problem and the same steps; white space does not count.
 * A solution that is not among them gets none. Probabilities beside the labels are taken in their place, where each of the file
 * calls its step right from one half on, and the step is not in it twice with different ones; shares of completions, of which a
 * single right one makes a step right, do not.
 *
 * @throws DataError for a file that cannot be read, or that labels a step of one solution as right and as wrong
 */
export async function labelFile(path: string): Promise<Scorer> {
  const solutions = new Map<string, readonly Marked[]>();
  let areProbabilities = true;
  for await (const record of loadRecords(path).records) {
    refuseTurns(record, 'a file of labels is of solutions');
    const { problem, steps } = record;
    const key = keyOf(
      problem,
      steps.map(({ text }) => text),
    );
    const known = solutions.get(key);
    solutions.set(
      key,
      steps.map(({ label, score }, i) => {
        const before = known?.[i];
        const other = before === undefined || before.label === null ? { label, score } : before;
        if (label !== null && label !== other.label)
          throw new DataError(
            'row',
            `step ${i + 1} is ${said(label)} here and ${said(other.label)} in an earlier row of the same solution; leave one`,
            record.provenance,
          );
        if (label !== null && score !== undefined && !isProbability(score, label)) areProbabilities = false;
        return label === null || score === other.score ? other : { label: other.label, score: undefined };
      }),
    );
  }
  const scoreOf = ({ label, score }: Marked) =>
    label === null || !areProbabilities ? label : (score ?? label);
  return scorer({
    name: path,
    score: async (asked) =>
      asked.map(({ problem, steps }) => ({
        scores: solutions.get(keyOf(problem, steps))?.map(scoreOf) ?? steps.map(() => null),
      })),
  });
}

const isProbability = (score: number, label: 0 | 1) =>
  score >= 0 && score <= 1 && score >= 0.5 === (label === 1);

const said = (label: StepLabel) => (label === 1 ? 'right' : 'wrong');

function keyOf(problem: string, steps: readonly string[]): string {
  return JSON.stringify([
    problemText(problem),
    ...steps.map((step) => step.normalize('NFC').trim().replace(/\s+/g, ' ')),
  ]);
}
