import { isUtf8 } from 'node:buffer';
import { badFile, reasonOf } from '../files/data-error.js';
import { keyTwice, parseExact } from '../files/exact-json.js';
import { shown } from '../native/shown.js';
import { BadRow } from './bad-row.js';

/** One row of a data file: its value, or the reason why it has none. Positions count from 1. */
export type RawRow = {
  readonly line?: number;
  readonly row: number;
} & (
  | { readonly value: unknown; readonly bad?: undefined }
  | { readonly value?: undefined; readonly bad: BadRow }
);

/** Max bytes of a row; a longer one means that the file is not in rows at all. */
const MAX_ROW_BYTES = 256 * 1024 * 1024;

const NEWLINE = 0x0a;
const SPACES = new Set([0x20, 0x09, 0x0a, 0x0d]);
const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const OPEN = new Set([0x5b, 0x7b]);
const CLOSE = new Set([0x5d, 0x7d]);
const COMMA = 0x2c;
const EMPTY = Buffer.alloc(0);

/**
 * Rows of JSON text as a stream; memory holds one row at a time. The content determines the layout: one value per
 * line, one array of rows, or values one after another (pretty-printed objects).
 *
 * @param lines read line by line unless the text starts with `[`: a line that is not JSON is then one bad row, and the
 *   rows after it are still read
 */
export async function* jsonRows(
  chunks: AsyncIterable<Buffer>,
  file: string,
  { lines }: { readonly lines: boolean },
): AsyncGenerator<RawRow> {
  const source = chunks[Symbol.asyncIterator]();
  const head = await firstContent(source);
  if (head === undefined) return;
  const rest = withHead(head.chunk, source);
  const reading = { file, line: head.line };
  if (head.first === 0x5b || !lines) yield* valueRows(rest, reading, head.first === 0x5b);
  else yield* lineRows(rest, reading);
}

/** Position of the text being read: its file, and the line of its first chunk. */
interface Reading {
  readonly file: string;
  readonly line: number;
}

/** The text from its first content on, without byte order mark and white space, and the line that it begins in. */
async function firstContent(
  source: AsyncIterator<Buffer>,
): Promise<{ chunk: Buffer; first: number; line: number } | undefined> {
  let seen: Buffer = Buffer.alloc(0);
  let isStart = true;
  let line = 1;
  for (let ended = false; !ended; ) {
    const next = await source.next();
    ended = next.done === true;
    if (!next.done) seen = seen.length === 0 ? next.value : Buffer.concat([seen, next.value]);
    if (isStart && seen.length < 3 && !ended) continue;
    if (isStart && seen[0] === 0xef && seen[1] === 0xbb && seen[2] === 0xbf) seen = seen.subarray(3);
    isStart = false;
    const at = seen.findIndex((byte) => !SPACES.has(byte));
    for (const byte of at < 0 ? seen : seen.subarray(0, at)) if (byte === NEWLINE) line++;
    if (at >= 0) return { chunk: seen.subarray(at), first: seen[at] as number, line };
    // Only white space so far, gigabytes of which may come from a small archive.
    seen = Buffer.alloc(0);
  }
  return undefined;
}

async function* withHead(head: Buffer, source: AsyncIterator<Buffer>): AsyncGenerator<Buffer> {
  yield head;
  for (let next = await source.next(); next.done !== true; next = await source.next()) yield next.value;
}

async function* lineRows(
  chunks: AsyncIterable<Buffer>,
  { file, line: firstLine }: Reading,
): AsyncGenerator<RawRow> {
  const pending = new PendingBytes(file);
  let line = firstLine - 1;
  let row = 0;
  for await (const chunk of chunks) {
    let start = 0;
    for (let end = chunk.indexOf(NEWLINE); end >= 0; end = chunk.indexOf(NEWLINE, start)) {
      line++;
      const isEmpty = end === start && pending.isEmpty;
      const bytes = isEmpty ? EMPTY : pending.take(chunk.subarray(start, end));
      start = end + 1;
      if (!isEmpty && !isBlank(bytes)) yield { line, row: ++row, ...parsed(bytes) };
    }
    if (start < chunk.length) pending.add(chunk.subarray(start), line + 1);
  }
  const last = pending.take(Buffer.alloc(0));
  if (!isBlank(last)) yield { line: line + 1, row: row + 1, ...parsed(last) };
}

/** Elements of a top-level array, or values that follow one another. */
async function* valueRows(
  chunks: AsyncIterable<Buffer>,
  { file, line: firstLine }: Reading,
  array: boolean,
): AsyncGenerator<RawRow> {
  const pending = new PendingBytes(file);
  const base = array ? 1 : 0;
  let line = firstLine;
  let row = 0;
  let depth = 0;
  let startLine = 0;
  let inString = false;
  let escaped = false;
  let closed = false;
  for await (const chunk of chunks) {
    // Start of the current value's bytes within this chunk; -1 between values.
    let start = startLine > 0 ? 0 : -1;
    for (let i = 0; i < chunk.length; i++) {
      const byte = chunk[i] as number;
      if (byte === NEWLINE) line++;
      if (inString) {
        if (escaped) escaped = false;
        else if (byte === BACKSLASH) escaped = true;
        else if (byte === QUOTE) inString = false;
        continue;
      }
      if (startLine === 0) {
        if (SPACES.has(byte)) continue;
        if (array && depth === 0 && !closed && byte === 0x5b) {
          depth = 1;
          continue;
        }
        if (array && depth === 1 && byte === COMMA) continue;
        if (array && depth === 1 && byte === 0x5d) {
          depth = 0;
          closed = true;
          continue;
        }
        if (closed) throw badFile('there is more text after the end of the list of rows', { file, line });
        startLine = line;
        start = i;
      }
      const isClose = CLOSE.has(byte);
      // A scalar element ends at the separator that follows it, an object or a list at its closing bracket.
      if (depth === base && (isClose || byte === COMMA || (base === 0 && SPACES.has(byte)))) {
        yield { line: startLine, row: ++row, ...parsed(pending.take(chunk.subarray(start, i))) };
        startLine = 0;
        start = -1;
        if (isClose && array) {
          depth = 0;
          closed = true;
        }
        continue;
      }
      if (byte === QUOTE) inString = true;
      else if (OPEN.has(byte)) depth++;
      else if (isClose && --depth === base) {
        yield { line: startLine, row: ++row, ...parsed(pending.take(chunk.subarray(start, i + 1))) };
        startLine = 0;
        start = -1;
      }
    }
    if (start >= 0) pending.add(chunk.subarray(start), startLine);
  }
  if (array && !closed) {
    throw badFile(`the list of rows is not closed; the file is cut short after row ${row}`, {
      file,
      line,
    });
  }
  if (startLine > 0) yield { line: startLine, row: row + 1, ...parsed(pending.take(Buffer.alloc(0))) };
}

/** The bytes of a row that began in an earlier chunk. */
class PendingBytes {
  private parts: Buffer[] = [];
  private size = 0;

  constructor(private readonly file: string) {}

  get isEmpty(): boolean {
    return this.size === 0;
  }

  add(bytes: Buffer, line: number): void {
    this.parts.push(bytes);
    this.size += bytes.length;
    if (this.size > MAX_ROW_BYTES) {
      throw badFile(`one row is longer than ${MAX_ROW_BYTES >> 20} MiB; expected one JSON row per line`, {
        file: this.file,
        line,
      });
    }
  }

  take(last: Buffer): Buffer {
    if (this.size === 0) return last;
    const bytes = Buffer.concat([...this.parts, last]);
    this.parts = [];
    this.size = 0;
    return bytes;
  }
}

function isBlank(bytes: Buffer): boolean {
  return bytes.every((byte) => SPACES.has(byte));
}

function parsed(bytes: Buffer): { value: unknown } | { bad: BadRow } {
  if (!isUtf8(bytes)) return { bad: new BadRow('invalid_text', 'the row is not valid UTF-8 text') };
  try {
    const text = bytes.toString('utf8');
    const value = parseExact(text);
    const twice = keyTwice(text, value);
    if (twice === undefined) return { value };
    return { bad: new BadRow('invalid_json', `the key ${shown(twice)} stands twice in one object`) };
  } catch (error) {
    return { bad: new BadRow('invalid_json', `the row is not JSON (${reasonOf(error)})`) };
  }
}
