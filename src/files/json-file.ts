// Small JSON files, written atomically.
import { readFile } from 'node:fs/promises';
import { writeFileAtomically } from './atomic-file.js';
import { FileError, systemReason } from './error.js';

/** Replaces `path` by `value` as indented JSON. Throws where a number would become `null`, naming its key. */
export async function writeJson(path: string, value: unknown): Promise<void> {
  refuseNonFinite(value, path);
  await writeFileAtomically(path, [Buffer.from(`${JSON.stringify(value, null, 2)}\n`)]);
}

/** Parses the JSON file at `path`. Throws FileError if it is missing, unreadable or truncated. */
export async function readJson(path: string): Promise<unknown> {
  let content: string;
  try {
    content = await readFile(path, 'utf8');
  } catch (error) {
    throw new FileError(`cannot read ${path}: ${systemReason(error)}`, { cause: error });
  }
  try {
    return JSON.parse(content);
  } catch (error) {
    throw new FileError(`${path} is not valid JSON: ${(error as Error).message}`, { cause: error });
  }
}

/** JSON has no NaN and no infinity; `JSON.stringify` writes null for them, which would pass for a missing value. */
export function refuseNonFinite(value: unknown, where: string): void {
  if (typeof value === 'number' && !Number.isFinite(value)) {
    throw new FileError(
      `${where}: ${value} is not a number that a JSON file can hold; if training made it, it diverged: lower its learning rate`,
    );
  }
  if (typeof value !== 'object' || value === null) return;
  for (const [key, child] of Object.entries(value)) refuseNonFinite(child, `${where}: ${key}`);
}
