import { badFile, DataError } from '../../files/data-error.js';
import { checkOptions } from '../../native/errors.js';
import { BadRow } from '../bad-row.js';
import { describeValue, groupColumn, type Row } from '../columns.js';
import { dataFiles } from '../files.js';
import { objectRows } from '../rows.js';
import {
  columnsLayout,
  detectLayout,
  LAYOUT_NAMES,
  LAYOUTS,
  type Layout,
  type LayoutName,
} from './layouts.js';
import type { Problem } from './problem.js';
import { besideQuestion, discarded, unreadColumns } from './unasked.js';

export interface ProblemOptions {
  /** `auto` (default) recognises it by the columns of each file's first row. */
  readonly layout?: LayoutName | 'auto' | undefined;
  /** A column whose values become the `group` of the problems. Default none. */
  readonly groupBy?: string | undefined;
  /** Columns of files in no layout; both or none. */
  readonly columns?: { readonly problem: string; readonly answer: string } | undefined;
}

const PROBLEM_OPTIONS: Record<keyof ProblemOptions, true> = { layout: true, groupBy: true, columns: true };

export interface LoadedProblems {
  readonly files: readonly string[];
  readonly layouts: readonly LayoutName[];
  readonly problems: readonly Problem[];
  /** Rows with parts that nobody is asked, such as a system message, by part; absent where there are none. */
  readonly unasked?: ReadonlyMap<string, number>;
}

/**
 * Problems with their answers from a data file, a pattern, or a directory of data files, in order.
 *
 * @throws DataError with file and line: a file that cannot be read, columns of no layout, a row without problem or answer
 */
export async function loadProblems(path: string, options: ProblemOptions = {}): Promise<LoadedProblems> {
  checkOptions('loadProblems', options, PROBLEM_OPTIONS);
  const { layout: named = 'auto', columns, groupBy } = options;
  const files = await dataFiles(path);
  const problems: Problem[] = [];
  const layouts = new Set<LayoutName>();
  const others = new Map<string, number>();
  for (const file of files) {
    let layout = columns ? columnsLayout(columns) : named === 'auto' ? undefined : LAYOUTS[named];
    for await (const { row, position } of objectRows(file)) {
      layout ??= detected(row, position);
      layouts.add(layout.name);
      try {
        const problem = layout.read(row);
        for (const part of [...besideQuestion(row, problem), ...unreadColumns(row), ...discarded(row)])
          others.set(part, (others.get(part) ?? 0) + 1);
        problems.push(groupBy === undefined ? problem : { ...problem, group: groupColumn(row, groupBy) });
      } catch (error) {
        if (!(error instanceof BadRow)) throw error;
        const found = `the columns are ${Object.keys(row).join(', ')}`;
        throw new DataError('row', `${error.message} (read as ${layout.name}; ${found})`, position);
      }
    }
  }
  if (problems.length === 0)
    throw badFile('there is no problem in it; expected rows with a problem and its answer', {
      file: path,
    });
  return { files, layouts: [...layouts], problems, ...(others.size > 0 ? { unasked: others } : {}) };
}

function detected(row: Row, position: ConstructorParameters<typeof DataError>[2]): Layout {
  const layout = detectLayout(row);
  if (layout !== undefined) return layout;
  const columns = Object.entries(row).map(([key, value]) => `${key} (${describeValue(value)})`);
  const known = LAYOUT_NAMES.map((name) => `${name} (${LAYOUTS[name].columns})`);
  throw new DataError(
    'format',
    `the columns ${columns.slice(0, 12).join(', ') || '(none)'} are of no known layout; name the columns of problem ` +
      `and answer; known are ${known.join('; ')}`,
    position,
  );
}
