// The prompts of `steptrain generate`: from the command line, a file or standard input.
import { readFile } from 'node:fs/promises';
import { Readable } from 'node:stream';
import { isRow } from '../../data/columns.js';
import { objectRows, type PlacedRow, STANDARD_INPUT } from '../../data/rows.js';
import { FileError, systemReason } from '../../files/error.js';
import { orNearFile } from '../../files/near-file.js';
import type { Prompt } from '../../generate/prompts.js';
import { UsageError } from '../line/error.js';

/** A prompt and its row. */
export interface GivenPrompt {
  readonly prompt: Prompt;
  /** `--file rows.jsonl, line 3`, for errors. */
  readonly where: string;
  readonly row: Readonly<Record<string, unknown>>;
}

/** Columns of a sample in the output. */
const WRITTEN = ['sample', 'prediction', 'finish_reason', 'tokens', 'logprobs'];
const ROWS = /\.(jsonl|json|csv|parquet)(\.gz)?$/;

/** Texts of the command line, unchanged. @throws UsageError for an empty one, as of a variable that is not set */
export function promptsOf(texts: readonly string[]): GivenPrompt[] {
  const empty = texts.indexOf('');
  if (empty >= 0) throw new UsageError(`prompt ${empty + 1} is empty; expected a text to go on from`);
  return texts.map((prompt, i) => ({ prompt, where: `prompt ${i + 1}`, row: { prompt } }));
}

/**
 * The prompts of a file of rows: in the given column, a text or a list of messages. Any other file, and standard input unless it
 * begins with an object, is one prompt.
 *
 * @param file - for standard input
 */
export async function promptsFrom(
  file: string,
  column: string,
  stdin: AsyncIterable<Buffer>,
): Promise<GivenPrompt[]> {
  if (file !== '-') {
    if (ROWS.test(file)) return fromRows(objectRows(file), file, column);
    const content = await readFile(file, 'utf8').catch((error: unknown) => {
      throw new FileError(`cannot read ${file}: ${systemReason(error)}${orNearFile(file)}`, { cause: error });
    });
    return [wholeText(content, file)];
  }
  const chunks: Buffer[] = [];
  for await (const chunk of stdin) chunks.push(Buffer.from(chunk));
  const bytes = Buffer.concat(chunks);
  if (!/^\s*\{/.test(bytes.subarray(0, 4096).toString('latin1')))
    return [wholeText(bytes.toString('utf8'), STANDARD_INPUT)];
  return fromRows(objectRows(STANDARD_INPUT, Readable.from([bytes])), STANDARD_INPUT, column);
}

/** The whole text as one prompt, without the line break that editors and `echo` put at the end. */
function wholeText(content: string, where: string): GivenPrompt {
  const prompt = content.replace(/\r?\n$/, '');
  if (prompt === '') throw new UsageError(`${where} is empty; expected a text to go on from`);
  return { prompt, where, row: { prompt } };
}

async function fromRows(
  rows: AsyncIterable<PlacedRow>,
  file: string,
  column: string,
): Promise<GivenPrompt[]> {
  const prompts: GivenPrompt[] = [];
  for await (const { row, where } of rows) {
    const taken = WRITTEN.find((name) => Object.hasOwn(row, name));
    if (taken !== undefined)
      throw new UsageError(
        `${where} has a column '${taken}' already, which would be lost under that of the sample; rename it, or remove it`,
      );
    prompts.push({ prompt: promptIn(row, column, where), where, row });
  }
  if (prompts.length === 0)
    throw new UsageError(`${file} has no rows; expected one JSON object a line with a column '${column}'`);
  return prompts;
}

function promptIn(row: Readonly<Record<string, unknown>>, column: string, where: string): Prompt {
  const value = row[column] ?? (column === 'prompt' ? row.messages : undefined);
  if (typeof value === 'string') return value;
  if (
    Array.isArray(value) &&
    value.length > 0 &&
    value.every((message) => isRow(message) && typeof message.role === 'string')
  )
    return value;
  const found = value === undefined ? 'it is not there' : 'it holds something else';
  throw new UsageError(
    `${where}: column '${column}' should hold a text or a list of messages with roles, and ${found}; the columns are ${Object.keys(row).join(', ')}; name one with --column`,
  );
}
