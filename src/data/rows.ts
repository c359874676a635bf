// Rows of a data file or of standard input as objects, each with its place; the first that is none is an error.
import { DataError, type FilePosition } from '../files/data-error.js';
import { isRow, type Row } from './columns.js';
import { fileRows } from './files.js';
import { jsonRows } from './json-rows.js';

export interface PlacedRow {
  readonly row: Row;
  readonly position: FilePosition;
  /** `out.jsonl, line 3`. */
  readonly where: string;
}

export const STANDARD_INPUT = 'standard input';

/**
 * @param chunks where given, JSON lines of standard input in place of the file
 * @throws DataError for a file that cannot be read, a row that is not JSON or not an object
 */
export async function* objectRows(file: string, chunks?: AsyncIterable<Buffer>): AsyncGenerator<PlacedRow> {
  const rows = chunks ? jsonRows(chunks, file, { lines: true }) : fileRows(file);
  for await (const { value: row, bad, ...place } of rows) {
    const position = { file, ...place };
    if (bad !== undefined) throw new DataError('row', bad.message, position);
    if (!isRow(row)) throw new DataError('row', 'the row is not an object of columns', position);
    const where = `${file}, ${place.line === undefined ? `row ${place.row}` : `line ${place.line}`}`;
    yield { row, position, where };
  }
}
