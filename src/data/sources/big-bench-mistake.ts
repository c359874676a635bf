import type { Step, StepLabel } from '../../records/record.js';
import { BadRow } from '../bad-row.js';
import { checkedText, describeValue, listColumn, optionalText, textColumn, wholeNumber } from '../columns.js';
import type { Source } from './source.js';

/**
 * BIG-Bench Mistake (arXiv 2311.08516): `mistake_index` is the index of the first wrong step, counted from 0, or null if none is
 * wrong. Steps before it are right, it is wrong, and the steps after it are unlabelled. `answer` is the trace's own, `target`
 * the right one.
 */
export const bigBenchMistake: Source<object> = {
  name: 'big_bench_mistake',
  columns: 'input, steps (texts), mistake_index (index of the first wrong step, or null)',
  matches: (row) => typeof row.input === 'string' && Array.isArray(row.steps) && 'mistake_index' in row,
  convert(row, _options, log) {
    const texts = listColumn(row, 'steps').map((text, i) => checkedText(text, `step ${i + 1}`));
    if (texts.length === 0) throw new BadRow('no_steps', "column 'steps' is an empty list");
    const wrong = wholeNumber(row.mistake_index ?? -1);
    if (typeof wrong !== 'number' || !Number.isInteger(wrong) || wrong < -1 || wrong >= texts.length)
      throw new BadRow(
        'bad_label',
        `column 'mistake_index' is ${describeValue(wrong)}; expected the index of the first wrong step ` +
          `(0 to ${texts.length - 1}) or null`,
      );
    const labelOf = (i: number): StepLabel => {
      if (wrong === -1 || i < wrong) return 1;
      if (i === wrong) return 0;
      log.unlabelled('after_first_error');
      return null;
    };
    const answer = optionalText(row, 'answer');
    const target = optionalText(row, 'target');
    return [
      {
        problem: textColumn(row, 'input'),
        ...(target === undefined ? {} : { gold_answer: target }),
        steps: texts.map((text, i) => ({ text, label: labelOf(i), kind: 'normal' }) satisfies Step),
        ...(answer === undefined || target === undefined
          ? {}
          : { outcome: answer.trim() === target.trim() ? (1 as const) : (0 as const) }),
      },
    ];
  },
};
