// Tables for people: columns are aligned by what a terminal shows, and nothing is left at the ends of lines.
import { expect, test } from 'vitest';
import { formatTable } from '../../src/terminal/table.js';

const ROWS = [
  ['name', '%', ''],
  ['one', '7.5', 'x'],
  ['数字', '100.0', ''],
];

test('has its first column at the left, the others at the right, and wide characters count twice', () => {
  expect(formatTable(ROWS).split('\n')).toEqual(['name      %', 'one     7.5  x', '数字  100.0']);
  const left = { isLeft: () => true, indent: 2 };
  expect(formatTable(ROWS, left).split('\n')).toEqual(['  name  %', '  one   7.5    x', '  数字  100.0']);
});

test('has a frame on a terminal, with the first row as its head', () => {
  const [top, head, rule, ...lines] = formatTable(ROWS, { boxed: true }).split('\n');
  expect([top?.[0], rule?.[0], lines.length]).toEqual(['┌', '├', 3]);
  expect(head).toMatch(/^│ name │ +% │/);
});

test('of no rows is empty', () => {
  expect(formatTable([])).toBe('');
});
