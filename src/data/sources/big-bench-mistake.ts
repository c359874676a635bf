import { defined } from '../../native/defined.js';
import type { StepRecord } from '../../records/record.js';
import { BadRow } from '../bad-row.js';
import { checkedText, listColumn, optionalText, textColumn } from '../columns.js';
import { stepsToFirstWrong } from './first-wrong.js';
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
    const where = { column: 'mistake_index', none: 'null' };
    const steps = stepsToFirstWrong(texts, row.mistake_index ?? -1, where, log);
    const answer = optionalText(row, 'answer');
    const target = optionalText(row, 'target');
    return [
      defined<StepRecord>({
        problem: textColumn(row, 'input'),
        gold_answer: target,
        steps,
        outcome: answer && target ? (answer.trim() === target.trim() ? 1 : 0) : undefined,
      }),
    ];
  },
};
