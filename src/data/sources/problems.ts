import { stepsOf } from '../../records/steps.js';
import { BadRow } from '../bad-row.js';
import { detectLayout, LAYOUT_NAMES, LAYOUTS, type Layout } from '../benchmarks/layouts.js';
import type { Problem } from '../benchmarks/problem.js';
import { besideQuestion } from '../benchmarks/unasked.js';
import { type Row, textColumn } from '../columns.js';
import type { Source } from './source.js';

/**
 * Problems with answers, in any layout of a benchmark (GSM8K, MATH, …), recognised after all others and only where no labels
 * of steps are needed: right solutions alone are of no use to those who judge steps. The steps are those of the worked
 * solution, all right.
 */
export const problems: Source<object> = {
  name: 'problems',
  columns: LAYOUT_NAMES.map((name) => LAYOUTS[name].columns).join(', or '),
  matches: () => false,
  convert(row, _, log) {
    const layout = detectLayout(row);
    if (layout === undefined)
      throw new BadRow(
        'no_problem',
        `the row has no problem with an answer; its columns are ${Object.keys(row).join(', ')}`,
      );
    const { problem, answer, solution } = readRow(layout, row);
    for (const part of besideQuestion(row, { problem, answer })) log.unasked(part);
    return [
      {
        problem,
        ...(answer === undefined ? {} : { gold_answer: answer }),
        ...(solution === undefined ? {} : { gold_solution: solution }),
        steps: stepsOf(solution ?? '').map((text) => ({ text, label: 1, kind: 'normal' })),
      },
    ];
  },
};

/** A worked solution that marks no answer is one to learn; those who need the answer leave it out. */
function readRow(layout: Layout, row: Row): Partial<Problem> & Pick<Problem, 'problem'> {
  try {
    return layout.read(row);
  } catch (error) {
    const column = ['problem', 'question'].find((name) => typeof row[name] === 'string');
    const isUnmarked = error instanceof BadRow && error.reason === 'no_answer';
    if (!isUnmarked || column === undefined || typeof row.solution !== 'string') throw error;
    return { problem: textColumn(row, column), solution: textColumn(row, 'solution') };
  }
}
