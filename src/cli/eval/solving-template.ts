// --template of `steptrain eval solve`: a text, or a file of one.
import { readFile } from 'node:fs/promises';
import { systemReason } from '../../files/error.js';
import { UsageError } from '../line/error.js';

/** A text with {problem}, where `\n` is a new line; anything else is the path of such a text. */
export async function templateFrom(given: string | undefined): Promise<string | undefined> {
  if (given === undefined) return undefined;
  if (given.includes('{problem}')) return given.replaceAll('\\n', '\n');
  const text = await readFile(given, 'utf8').catch((error: unknown) => {
    throw new UsageError(
      `--template expects a text with {problem} or a file of one; ${given} has no {problem}, and as a file it cannot be read: ${systemReason(error)}`,
    );
  });
  return text.replace(/\r?\n$/, '');
}
