import { numberText, picked } from '../files/exact-json.js';
import { BadRow } from './bad-row.js';

/** A raw row: column names to values of any type. */
export type Row = Readonly<Record<string, unknown>>;

/** Whether the row has all these columns; null counts as absent. */
export const has = (row: Row, ...columns: readonly string[]): boolean =>
  columns.every((column) => row[column] !== undefined && row[column] !== null);

/** Typed access to the columns of a row; each throws {@link BadRow} with the expected and the found value. */

/** A column with text that is not only white space. */
export function textColumn(row: Row, key: string, where = `column '${key}'`): string {
  return checkedText(
    column(row, key, where, 'text', (value) => typeof value === 'string'),
    where,
  );
}

/** A column that may be absent or null; empty text counts as absent. */
export function optionalText(row: Row, key: string): string | undefined {
  const value = row[key];
  if (value === undefined || value === null || value === '') return undefined;
  return numberText(row, key) ?? textColumn(row, key);
}

/** A column that holds a list. */
export function listColumn(row: Row, key: string, where = `column '${key}'`): readonly unknown[] {
  return column(row, key, where, 'a list', Array.isArray);
}

/** A column that holds an object. */
export function objectColumn(row: Row, key: string): Row {
  return column(row, key, `column '${key}'`, 'an object', isRow);
}

function column<T>(
  row: Row,
  key: string,
  where: string,
  expected: string,
  is: (value: unknown) => value is T,
): T {
  const value = row[key];
  if (is(value)) return value;
  if (value === undefined || value === null)
    throw new BadRow('missing_column', `${where} is missing; expected ${expected}`);
  throw misfit(`${where} holds`, value, expected);
}

/** Characters of the longest text: about 32 for each token of the longest models. To tokenise more takes gigabytes. */
const LONGEST_TEXT = 1 << 22;

/** Text that is not blank, that some model could read, and that has no half of a surrogate pair, which UTF-8 cannot hold. */
export function checkedText(value: unknown, where: string): string {
  if (typeof value !== 'string') {
    throw misfit(`${where} holds`, value, 'text');
  }
  if (value.length > LONGEST_TEXT)
    throw new BadRow(
      'long_text',
      `${where} has ${value.length.toLocaleString('en')} characters, more than any model reads; expected at most ` +
        LONGEST_TEXT.toLocaleString('en'),
    );
  if (value.trim() === '') throw new BadRow('empty_text', `${where} is empty; expected text`);
  if (/\p{Surrogate}/u.test(value)) {
    throw new BadRow(
      'invalid_text',
      `${where} holds half of a surrogate pair, which is not valid Unicode text`,
    );
  }
  return value;
}

/** A right/wrong mark written as a boolean or as 1 and 0, or as CSV's words for them; null stays null. */
export function labelValue(value: unknown, where: string): 1 | 0 | null {
  if (value === null || value === undefined) return null;
  const mark = typeof value === 'string' ? value.trim().toLowerCase() : value;
  if (mark === true || mark === 1 || mark === 'true' || mark === '1') return 1;
  if (mark === false || mark === 0 || mark === 'false' || mark === '0') return 0;
  throw misfit(`${where} is`, value, 'true, false, 1, 0 or null', 'bad_label');
}

/** A whole number that CSV holds as text, as a number; anything else as it is. */
export function wholeNumber(value: unknown): unknown {
  return typeof value === 'string' && /^\s*-?\d{1,15}\s*$/.test(value) ? Number(value) : value;
}

/**
 * The row with the columns that `names` renames, by the layout's own name; others unchanged.
 *
 * @throws BadRow where a column that is to be renamed is missing
 */
export function renamed(row: Row, names: Readonly<Record<string, string>>): Row {
  const taken = new Set(Object.values(names));
  const kept = Object.keys(row).filter((column) => !taken.has(column));
  const found = Object.entries(names).map(([name, column]) => {
    if (Object.hasOwn(row, column)) return [name, column] as const;
    throw new BadRow(
      'missing_column',
      `column '${column}' (data.columns.${name}) is missing; the columns are ${Object.keys(row).slice(0, 12).join(', ') || '(none)'}`,
    );
  });
  return picked(row, [...kept.map((column) => [column, column] as const), ...found]);
}

/** The value of a column that groups rows, as text. @throws BadRow without the column, or for a list or an object */
export function groupColumn(row: Row, column: string): string {
  const value = row[column];
  if (value === null || value === '') return '(none)';
  if (typeof value === 'string' || typeof value === 'boolean') return String(value);
  const number = numberText(row, column);
  if (number !== undefined) return number;
  throw new BadRow(
    'bad_group',
    value === undefined
      ? `column '${column}' to group by is missing; the columns are ${Object.keys(row).slice(0, 12).join(', ')}`
      : `column '${column}' to group by holds ${describeValue(value)}; expected text, a number, true or false`,
  );
}

export function isRow(value: unknown): value is Row {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/**
 * The error about a value that is no such thing.
 *
 * @param where it stands, with a verb: `step 3 is`, `column 'steps' holds`
 */
export function misfit(where: string, value: unknown, expected: string, reason = 'wrong_type'): BadRow {
  return new BadRow(reason, `${where} ${describeValue(value)}; expected ${expected}`);
}

/** A short description of a value for an error sentence. */
export function describeValue(value: unknown): string {
  if (value === undefined) return 'nothing';
  if (value === null) return 'null';
  if (Array.isArray(value)) return `a list of ${value.length}`;
  if (typeof value === 'object') return 'an object';
  if (typeof value === 'string')
    return `the text ${JSON.stringify(value.length > 40 ? `${value.slice(0, 40)}…` : value)}`;
  return `the ${typeof value === 'bigint' ? 'number' : typeof value} ${String(value)}`;
}
