import type { Step, StepLabel } from '../../records/record.js';
import { BadRow } from '../bad-row.js';
import {
  checkedText,
  describeValue,
  labelValue,
  listColumn,
  optionalText,
  textColumn,
  wholeNumber,
} from '../columns.js';
import type { Source } from './source.js';

/**
 * ProcessBench: `label` is the index of the first wrong step, counted from 0, or -1 if none is wrong. Steps before it
 * are right, it is wrong, and the steps after it are unlabelled.
 */
export const processbench: Source<object> = {
  name: 'processbench',
  columns: 'problem, steps (texts), label (index of the first wrong step)',
  matches: (row) =>
    typeof row.problem === 'string' && isTextList(row.steps) && typeof wholeNumber(row.label) === 'number',
  convert(row, _options, log) {
    const problem = textColumn(row, 'problem');
    const texts = listColumn(row, 'steps').map((text, i) => checkedText(text, `step ${i + 1}`));
    const firstWrong = wholeNumber(row.label);
    if (!isStepIndex(firstWrong, texts.length)) {
      throw new BadRow(
        'bad_label',
        `column 'label' is ${describeValue(firstWrong)}; expected the index of the first wrong step ` +
          `(0 to ${texts.length - 1}) or -1`,
      );
    }
    const labelOf = (i: number): StepLabel => {
      if (firstWrong === -1 || i < firstWrong) return 1;
      if (i === firstWrong) return 0;
      log.unlabelled('after_first_error');
      return null;
    };
    const steps = texts.map((text, i): Step => ({ text, label: labelOf(i), kind: 'normal' }));
    const outcome = labelValue(row.final_answer_correct, "column 'final_answer_correct'");
    const id = optionalText(row, 'id');
    return [
      {
        problem,
        steps,
        ...(outcome === null ? {} : { outcome }),
        ...(id === undefined ? {} : { provenance: { file: '', id } }),
      },
    ];
  },
};

function isTextList(value: unknown): boolean {
  return Array.isArray(value) && value.length > 0 && value.every((entry) => typeof entry === 'string');
}

function isStepIndex(value: unknown, count: number): value is number {
  return typeof value === 'number' && Number.isInteger(value) && value >= -1 && value < count;
}
