import { defined } from '../../native/defined.js';
import type { StepRecord } from '../../records/record.js';
import { checkedText, labelValue, listColumn, optionalText, textColumn, wholeNumber } from '../columns.js';
import { stepsToFirstWrong } from './first-wrong.js';
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
    const steps = stepsToFirstWrong(texts, row.label, { column: 'label', none: '-1' }, log);
    const outcome = labelValue(row.final_answer_correct, "column 'final_answer_correct'") ?? undefined;
    const id = optionalText(row, 'id');
    return [
      defined<StepRecord>({
        problem,
        steps,
        outcome,
        provenance: id === undefined ? undefined : { file: '', id },
      }),
    ];
  },
};

function isTextList(value: unknown): boolean {
  return Array.isArray(value) && value.length > 0 && value.every((entry) => typeof entry === 'string');
}
