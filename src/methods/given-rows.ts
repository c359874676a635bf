/**
 * Rows of a program in memory: they are kept in files next to the run, since `resume` compares and reads them again.
 */

import { createHash } from 'node:crypto';
import { existsSync } from 'node:fs';
import { mkdir, rm } from 'node:fs/promises';
import { dirname, join, resolve } from 'node:path';
import { PARTS, type Part } from '../data/split.js';
import { writeFileAtomically } from '../files/atomic-file.js';
import { DataError } from '../files/data-error.js';
import { exactText } from '../files/exact-json.js';
import { checkOptions, invalid } from '../native/errors.js';
import { shown } from '../native/shown.js';
import { completeRunConfig } from './config.js';
import type { RunConfig, RunConfigInput } from './table.js';

export interface GivenRows {
  /** Complete: its data are files with the rows, named by their content, in the folder of the run's directory. */
  readonly config: RunConfig;
  /** Cleans up after a run that came to nothing: no file of its own, and an error that speaks of the rows. */
  failed(error: unknown): Promise<unknown>;
}

/** Number of runs of this process that read a file that it has written. */
const readers = new Map<string, number>();

/** @throws StepTrainError for what are no rows, and where the configuration names data for the same part */
export async function givenRows(
  config: RunConfigInput,
  rows: Readonly<Partial<Record<Part, readonly object[] | undefined>>>,
  output: string | undefined,
): Promise<GivenRows> {
  checkOptions('train: rows', rows, { train: true, validation: true, test: true });
  if (PARTS.every((part) => rows[part] === undefined))
    throw invalid('train: rows: expected a part, `train`, `validation` or `test`, found none');
  const { data, ...others } = config as { readonly data?: object };
  const texts = PARTS.flatMap((part) => {
    const given = rows[part];
    if (given === undefined) return [];
    checkRows(part, given);
    if (data && Object.hasOwn(data, part))
      throw invalid(`train: there are rows.${part} and data.${part}; leave one of them out`);
    const text = given.map((row) => `${exactText(row)}\n`).join('');
    const hash = createHash('sha256').update(text).digest('hex').slice(0, 12);
    return [{ part, text, name: `rows-${part}-${hash}.jsonl` }];
  });
  const completed = (folder: string) => {
    const files = Object.fromEntries(texts.map(({ part, name }) => [part, join(folder, name)]));
    return completeRunConfig({ ...others, data: { ...data, ...files } });
  };
  // A configuration that cannot be writes nothing.
  const { run } = completed('');
  const folder = dirname(resolve(output ?? run.output_dir));
  await mkdir(folder, { recursive: true });
  const files = texts.map(({ part, text, name }) => ({ part, text, path: join(folder, name) }));
  for (const { path, text } of files) {
    const others = readers.get(path);
    if (others === undefined && existsSync(path)) continue;
    readers.set(path, (others ?? 0) + 1);
    if (others === undefined) await writeFileAtomically(path, [Buffer.from(text)]);
  }
  return {
    config: completed(folder),
    async failed(error) {
      for (const { path } of files) {
        const others = (readers.get(path) ?? 0) - 1;
        if (others > 0) readers.set(path, others);
        else if (readers.delete(path)) await rm(path, { force: true });
      }
      return aboutRows(error, files);
    },
  };
}

/** Turns the error about a file into one about the rows in it, in a program's terms. */
function aboutRows(
  error: unknown,
  files: readonly { readonly part: Part; readonly path: string }[],
): unknown {
  if (!(error instanceof DataError)) return error;
  const { position, kind } = error;
  const given = files.find(({ path }) => path === position?.file);
  if (!given || position?.row === undefined) return error;
  const hint =
    kind === 'row'
      ? "correct the row, or leave such rows out by data.on_bad_row: 'skip'"
      : "columns of other names are renamed by data.columns, such as { question: 'NAME' }";
  return error.at({ file: `train: rows.${given.part}`, row: position.row }, hint);
}

function checkRows(part: string, given: unknown): void {
  const expected = `train: rows.${part}: expected a list of rows such as { problem, steps, labels }`;
  if (!Array.isArray(given) || given.length === 0)
    throw invalid(`${expected}, found ${Array.isArray(given) ? 'an empty list' : shown(given)}`);
  const bad = given.findIndex((row) => typeof row !== 'object' || row === null || Array.isArray(row));
  if (bad >= 0) throw invalid(`${expected}; row ${bad + 1} is ${shown(given[bad])}`);
}
