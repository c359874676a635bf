import { isDeepStrictEqual } from 'node:util';
import type { Step } from '../../records/record.js';
import { BadRow } from '../bad-row.js';
import { otherQuestions } from '../benchmarks/unasked.js';
import { checkedText, isRow, labelValue, listColumn, type Row, textColumn } from '../columns.js';
import { statesAnswer } from '../label-rules.js';
import type { ReadingOptions, Source } from './source.js';

/** The names that files have for the problem and for its steps; the first that a row has is read, as by `solutionsOf`. */
const PROBLEMS = ['problem', 'question', 'prompt'];
const STEPS = { completions: 'completion', steps: 'step' } as const;

/** A problem, its steps as texts, and a right/wrong mark for each: TRL's stepwise supervision, and rows of one's own. */
export const stepwise: Source<Pick<ReadingOptions, 'label_threshold'>> = {
  name: 'stepwise',
  columns:
    'problem, question or prompt; completions or steps (texts); labels (1/0, true/false, a number between or null)',
  matches: (row) =>
    PROBLEMS.some((name) => typeof row[name] === 'string') &&
    stepColumns.some((name) => isTexts(row[name])) &&
    Array.isArray(row.labels),
  convert(row, { label_threshold }, log) {
    const problem = textColumn(row, firstOf(row, PROBLEMS, 'prompt'));
    for (const column of otherQuestions(row, [problem])) log.unasked(column);
    const column = labelledColumn(row);
    const texts = listColumn(row, column);
    const labels = listColumn(row, 'labels');
    if (texts.length !== labels.length) {
      throw new BadRow(
        'length_mismatch',
        `labels: ${labels.length}, ${column}: ${texts.length}; expected a label for each`,
      );
    }
    if (texts.length === 0) throw new BadRow('no_steps', `column '${column}' is an empty list`);
    if (column === 'completions') refuseSamples(texts);
    const steps = texts.map((text, i): Step => {
      const { label, ...score } = stepLabel(
        labels[i],
        `the label of ${STEPS[column]} ${i + 1}`,
        label_threshold,
      );
      if (label === null) log.unlabelled('null_label');
      return { text: checkedText(text, `${STEPS[column]} ${i + 1}`), label, ...score, kind: 'normal' };
    });
    return [{ problem, steps }];
  },
};

/** A mark, or a number between 0 and 1, such as a share of rollouts: its score, and right from the threshold on. */
function stepLabel(value: unknown, where: string, threshold: number): Pick<Step, 'label' | 'score'> {
  const number = typeof value === 'string' && value.trim() !== '' ? Number(value) : value;
  if (typeof number === 'number' && number > 0 && number < 1)
    return { label: number >= threshold ? 1 : 0, score: number };
  return { label: labelValue(value, where) };
}

const stepColumns = Object.keys(STEPS);

/** The first of the names that the row has, or `missing`, which is then missed by name. */
const firstOf = (row: Row, names: readonly string[], missing: string): string =>
  names.find((name) => Object.hasOwn(row, name)) ?? missing;

/**
 * Refuses a column `completions` of which every text states an answer: these are samples of whole solutions, such as
 * programs write under that name too. Among three or more steps of one solution the first states none.
 *
 * @throws BadRow
 */
export function refuseSamples(texts: readonly unknown[]): void {
  const isSolution = (text: unknown) => typeof text === 'string' && statesAnswer(text);
  if (texts.length < 3 || !texts.every(isSolution)) return;
  throw new BadRow(
    'samples_as_steps',
    `each of the ${texts.length} texts in column 'completions' states an answer, so that they look like whole solutions, not like steps of one; ` +
      "write a row for each of them (prompt, completion, label), or, if they are steps, name the column 'steps'",
  );
}

/** The column of the steps. @throws BadRow where two have different ones that the labels may mean */
function labelledColumn(row: Row): keyof typeof STEPS {
  const labels = Array.isArray(row.labels) ? row.labels.length : 0;
  const both = stepColumns.filter((name) => isTexts(row[name])) as (keyof typeof STEPS)[];
  const fitting = both.filter((name) => listColumn(row, name).length === labels);
  if (fitting.length > 1 && !isDeepStrictEqual(row.completions, row.steps))
    throw new BadRow(
      'ambiguous_steps',
      "columns 'completions' and 'steps' hold different texts, and the labels may be of either; leave one of them out",
    );
  return fitting[0] ?? (firstOf(row, stepColumns, 'completions') as keyof typeof STEPS);
}

/** Steps that are objects carry their own labels: layout `record`. */
const isTexts = (value: unknown): boolean => Array.isArray(value) && !value.some(isRow);
