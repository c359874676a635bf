// Tables and lines for a terminal of 80 columns.
import Table from 'cli-table3';

const SCREEN = 80;

/** A line broken between words to fit a screen, further lines indented. */
export function wrapped(line: string): string {
  const lines: string[] = [];
  let current = '';
  for (const word of line.split(' ')) {
    if (current.trim() !== '' && current.length + 1 + word.length > SCREEN) {
      lines.push(current);
      current = `  ${word}`;
    } else current += current === '' ? word : ` ${word}`;
  }
  return [...lines, current].join('\n');
}

export interface TableOptions {
  /** Framed, with the first row as its header: for a terminal. Default false: without a frame, for a pipe. */
  readonly boxed?: boolean;
  /** Which columns are left-aligned. Default the first. */
  readonly isLeft?: (column: number) => boolean;
  /** Spaces before each line. Default 0. */
  readonly indent?: number;
}

const PARTS =
  'top top-mid top-left top-right bottom bottom-mid bottom-left bottom-right left left-mid mid mid-mid right right-mid';
const NO_FRAME = { ...Object.fromEntries(PARTS.split(' ').map((part) => [part, ''])), middle: '  ' };

/** Rows of cells as lines whose columns are aligned. */
export function formatTable(
  rows: readonly (readonly string[])[],
  { boxed = false, isLeft = (column) => column === 0, indent = 0 }: TableOptions = {},
): string {
  const [head = [], ...body] = rows.map((row) => [...row]);
  const table = new Table({
    colAligns: head.map((_, i) => (isLeft(i) ? 'left' : 'right')),
    style: {
      head: [],
      border: [],
      compact: true,
      ...(boxed ? {} : { 'padding-left': 0, 'padding-right': 0 }),
    },
    ...(boxed ? { head } : { chars: NO_FRAME }),
  });
  table.push(...(boxed ? body : [head, ...body]));
  const lines = table.toString().split('\n');
  return lines.map((line) => `${' '.repeat(indent)}${line}`.trimEnd()).join('\n');
}
