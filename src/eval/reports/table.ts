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

/** Framed, for a terminal. The first row is the header; the first column is left-aligned, the others right-aligned. */
export function boxedTable([head, ...rows]: readonly string[][]): string {
  const table = new Table({
    head: head!,
    colAligns: head!.map((_, i) => (i === 0 ? 'left' : 'right')),
    style: { head: [], border: [], compact: true },
  });
  table.push(...rows);
  return table.toString();
}

/** A table without a frame, for a pipe; `isLeft` says which columns are left-aligned. */
export function plainTable(
  rows: readonly string[][],
  isLeft = (column: number): boolean => column === 0,
): string {
  const widths = rows[0]!.map((_, i) => Math.max(...rows.map((row) => row[i]!.length)));
  return rows
    .map((row) =>
      row
        .map((cell, i) => (isLeft(i) ? cell.padEnd(widths[i]!) : cell.padStart(widths[i]!)))
        .join('  ')
        .trimEnd(),
    )
    .join('\n');
}
