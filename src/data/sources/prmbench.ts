import { defined } from '../../native/defined.js';
import type { Step, StepRecord } from '../../records/record.js';
import { BadRow } from '../bad-row.js';
import { checkedText, listColumn, misfit, optionalText, textColumn } from '../columns.js';
import type { Source } from './source.js';

/**
 * PRMBench (arXiv 2501.03124): `modified_process` holds the steps that are judged, `error_steps` the numbers of the wrong
 * ones, counted from 1; all others are right, also after an error. Metrics are broken down by `classification`.
 */
export const prmbench: Source<object> = {
  name: 'prmbench',
  columns: 'modified_question, modified_process (texts), error_steps (numbers from 1)',
  matches: (row) => Array.isArray(row.modified_process) && Array.isArray(row.error_steps),
  convert(row) {
    const problem = textColumn(
      row,
      typeof row.modified_question === 'string' ? 'modified_question' : 'question',
    );
    const texts = listColumn(row, 'modified_process').map((text, i) =>
      checkedText(text, `step ${i + 1} of 'modified_process'`),
    );
    if (texts.length === 0) throw new BadRow('no_steps', "column 'modified_process' is an empty list");
    const wrong = new Set(
      listColumn(row, 'error_steps').map((step) => {
        if (typeof step === 'number' && Number.isInteger(step) && step >= 1 && step <= texts.length)
          return step;
        throw misfit(
          "column 'error_steps' holds",
          step,
          `numbers of steps from 1 to ${texts.length}`,
          'bad_label',
        );
      }),
    );
    const steps = texts.map((text, i): Step => ({ text, label: wrong.has(i + 1) ? 0 : 1, kind: 'normal' }));
    const id = optionalText(row, 'idx');
    const group = optionalText(row, 'classification');
    const provenance = id === undefined ? undefined : { file: '', id };
    return [defined<StepRecord>({ problem, steps, group, provenance })];
  },
};
