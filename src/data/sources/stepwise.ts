import type { Step } from '../../records/record.js';
import { BadRow } from '../bad-row.js';
import { checkedText, isRow, labelValue, listColumn, type Row, textColumn } from '../columns.js';
import type { ReadingOptions, Source } from './source.js';

/** The names that files have for the problem and for its steps; the first that a row has is read. */
const PROBLEMS = ['prompt', 'problem', 'question'];
const STEPS = { completions: 'completion', steps: 'step' } as const;

/** A problem, its steps as texts, and a right/wrong mark for each: TRL's stepwise supervision, and rows of one's own. */
export const stepwise: Source<Pick<ReadingOptions, 'label_threshold'>> = {
  name: 'stepwise',
  columns:
    'prompt, problem or question; completions or steps (texts); labels (1/0, true/false, a number between or null)',
  matches: (row) =>
    PROBLEMS.some((name) => typeof row[name] === 'string') &&
    stepColumns.some((name) => isTexts(row[name])) &&
    Array.isArray(row.labels),
  convert(row, { label_threshold }, log) {
    const problem = textColumn(row, firstOf(row, PROBLEMS));
    const column = firstOf(row, stepColumns) as keyof typeof STEPS;
    const texts = listColumn(row, column);
    const labels = listColumn(row, 'labels');
    if (texts.length !== labels.length) {
      throw new BadRow(
        'length_mismatch',
        `labels: ${labels.length}, ${column}: ${texts.length}; expected a label for each`,
      );
    }
    if (texts.length === 0) throw new BadRow('no_steps', `column '${column}' is an empty list`);
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

/** The first of the names that the row has; where it has none, the first, which is then missed by name. */
const firstOf = (row: Row, names: readonly string[]): string =>
  names.find((name) => Object.hasOwn(row, name)) ?? (names[0] as string);

/** Steps that are objects carry their own labels: layout `record`. */
const isTexts = (value: unknown): boolean => Array.isArray(value) && !value.some(isRow);
