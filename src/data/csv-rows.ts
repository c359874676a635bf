import { isUtf8 } from 'node:buffer';
import { badFile, type DataError } from '../files/data-error.js';
import { parseExact } from '../files/exact-json.js';
import { attempt } from '../native/attempt.js';
import { BadRow } from './bad-row.js';
import type { Row } from './columns.js';
import type { RawRow } from './json-rows.js';
import { pythonValue, SHORTENED } from './python-text.js';

/** Max characters of a cell; a longer one means that a quote was never closed. */
const MAX_CELL = 256 * 1024 * 1024;

/** Max cells of a row; more mean that the file is no table. */
const MAX_CELLS = 100_000;

/**
 * Rows of comma-separated text (RFC 4180) as a stream. The first row names the columns. Every cell is text, but a list or object in
 * JSON, or as Python or NumPy prints it, is that, and an empty cell is null. Quoted cells may hold line breaks; a row's place is the
 * line it begins on.
 *
 * @throws DataError for a header that names a column twice or not at all, and for a quote that is never closed
 */
export async function* csvRows(chunks: AsyncIterable<Buffer>, file: string): AsyncGenerator<RawRow> {
  let names: readonly string[] | undefined;
  let row = 0;
  for await (const { line, cells, bad } of records(chunks, file)) {
    if (names === undefined) {
      names = headerOf(cells, bad, { file, line });
      continue;
    }
    const place = { line, row: ++row };
    const value = bad ?? wrongCount(cells, names) ?? rowOf(names, cells);
    yield value instanceof BadRow ? { ...place, bad: value } : { ...place, value };
  }
}

interface CsvRecord {
  readonly line: number;
  readonly cells: readonly string[];
  readonly bad: BadRow | undefined;
}

/** A byte is a character here, so that chunks may be cut anywhere; cells are decoded when they are whole. */
async function* records(chunks: AsyncIterable<Buffer>, file: string): AsyncGenerator<CsvRecord> {
  let [line, startLine, quoteLine] = [1, 1, 1];
  let state: 'start' | 'plain' | 'quoted' | 'closed' = 'start';
  let cell = '';
  let cells: string[] = [];
  let bad: BadRow | undefined;
  let first = true;
  let afterReturn = false;
  const endCell = () => {
    const bytes = Buffer.from(cell, 'latin1');
    if (!isUtf8(bytes)) bad ??= new BadRow('invalid_text', 'the row is not valid UTF-8 text');
    if (cells.length === MAX_CELLS)
      throw badFile(`the row has more than ${MAX_CELLS} cells; the file is no table`, {
        file,
        line: startLine,
      });
    cells.push(bytes.toString('utf8'));
    cell = '';
    state = 'start';
  };
  const isBlank = () => cells.length === 0 && cell === '' && state === 'start';
  const endRow = (): CsvRecord => {
    endCell();
    const whole = { line: startLine, cells, bad };
    [cells, bad] = [[], undefined];
    return whole;
  };
  for await (const chunk of chunks) {
    const text = (first ? withoutMark(chunk) : chunk).toString('latin1');
    first = false;
    for (let i = 0; i < text.length; ) {
      const character = text[i] as string;
      if (state === 'quoted') {
        const end = text.indexOf('"', i);
        const part = text.slice(i, end < 0 ? undefined : end);
        line += part.split('\n').length - 1;
        cell += part;
        if (cell.length > MAX_CELL) throw unclosed(file, quoteLine);
        if (end < 0) break;
        state = 'closed';
        i = end + 1;
        continue;
      }
      i++;
      if (afterReturn && character !== '\n')
        bad ??= new BadRow(
          'bad_line_end',
          'a carriage return stands without its line feed; end the lines with \\n, and quote cells that hold a break',
        );
      afterReturn = character === '\r';
      if (state === 'closed' && character === '"') {
        cell += '"';
        state = 'quoted';
      } else if (character === ',') endCell();
      else if (character === '\n') {
        if (!isBlank()) yield endRow();
        startLine = ++line;
      } else if (character === '\r') {
        // Half of a line break.
      } else if (state === 'start' && character === '"') {
        state = 'quoted';
        quoteLine = line;
      } else if (state === 'closed') {
        bad ??= new BadRow(
          'bad_quotes',
          `cell ${cells.length + 1} goes on after its closing quote; double the quotes inside a quoted cell`,
        );
      } else {
        const end = text.slice(i).search(/[,\r\n]/);
        cell += text.slice(i - 1, end < 0 ? undefined : i + end);
        if (cell.length > MAX_CELL)
          throw badFile(`a cell has more than ${MAX_CELL} characters; the file is no table`, {
            file,
            line: startLine,
          });
        state = 'plain';
        i = end < 0 ? text.length : i + end;
      }
    }
  }
  if (state === 'quoted') throw unclosed(file, quoteLine);
  if (!isBlank()) yield endRow();
}

function withoutMark(chunk: Buffer): Buffer {
  return chunk[0] === 0xef && chunk[1] === 0xbb && chunk[2] === 0xbf ? chunk.subarray(3) : chunk;
}

function unclosed(file: string, line: number): DataError {
  return badFile(
    'the quote that opens here is never closed; the file is cut short, or a quote inside a cell is not doubled',
    { file, line },
  );
}

function headerOf(
  cells: readonly string[],
  bad: BadRow | undefined,
  place: { readonly file: string; readonly line: number },
): readonly string[] {
  if (bad) throw badFile(bad.message, place);
  const names = cells.map((cell) => cell.trim());
  const empty = names.indexOf('');
  if (empty >= 0) throw badFile(`column ${empty + 1} has no name; the first row names the columns`, place);
  const seen = new Set<string>();
  const twice = names.find((name) => seen.size === seen.add(name).size);
  if (twice !== undefined) throw badFile(`two columns have the name '${twice}'`, place);
  return names;
}

function wrongCount(cells: readonly string[], names: readonly string[]): BadRow | undefined {
  if (cells.length === names.length) return undefined;
  return new BadRow(
    'wrong_cells',
    `the row has ${cells.length} cells and the header ${names.length}; quote cells that hold commas`,
  );
}

function rowOf(names: readonly string[], cells: readonly string[]): Row | BadRow {
  const values = cells.map(cellValue);
  const cut = values.indexOf(SHORTENED);
  if (cut < 0) return Object.fromEntries(names.map((name, i) => [name, values[i]]));
  return new BadRow(
    'shortened_list',
    `column '${names[cut]}' holds a list of which NumPy printed only both ends (${JSON.stringify(cells[cut]!.slice(0, 40))}…), as it does ` +
      'beyond 1,000 elements; write JSON or Parquet instead (to_json or to_parquet in place of to_csv)',
  );
}

function cellValue(cell: string): unknown {
  if (cell === '') return null;
  if (!/^\s*[[{]/.test(cell)) return cell;
  return attempt(() => parseExact(cell)) ?? pythonValue(cell) ?? cell;
}
