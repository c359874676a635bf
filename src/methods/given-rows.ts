/** Rows that a program has in memory: kept in files beside the run, since `resume` compares and reads them again. */
import { createHash } from 'node:crypto';
import { existsSync } from 'node:fs';
import { mkdir } from 'node:fs/promises';
import { dirname, join, resolve } from 'node:path';
import { PARTS, type Part } from '../data/split.js';
import { writeFileAtomically } from '../files/atomic-file.js';
import { checkOptions, invalid } from '../native/errors.js';
import { shown } from '../native/shown.js';
import { completeRunConfig } from './config.js';
import type { RunConfig, RunConfigInput } from './table.js';

/**
 * The complete configuration, whose data are files with the rows, named by their content, in the folder of the run's directory.
 *
 * @throws StepTrainError for what are no rows, and where the configuration names data for the same part
 */
export async function withRows(
  config: RunConfigInput,
  rows: Readonly<Partial<Record<Part, readonly object[] | undefined>>>,
  output: string | undefined,
): Promise<RunConfig> {
  checkOptions('train: rows', rows, { train: true, validation: true, test: true });
  if (rows.train === undefined) throw invalid('train: rows: expected the part `train`, found none');
  const { data, ...others } = config as { readonly data?: object };
  const texts = PARTS.flatMap((part) => {
    const given = rows[part];
    if (given === undefined) return [];
    checkRows(part, given);
    if (data && Object.hasOwn(data, part))
      throw invalid(`train: there are rows.${part} and data.${part}; leave one of them out`);
    const text = given.map((row) => `${JSON.stringify(row)}\n`).join('');
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
  for (const { name, text } of texts) {
    const path = join(folder, name);
    if (!existsSync(path)) await writeFileAtomically(path, [Buffer.from(text)]);
  }
  return completed(folder);
}

function checkRows(part: string, given: unknown): void {
  const expected = `train: rows.${part}: expected a list of rows such as { problem, steps, labels }`;
  if (!Array.isArray(given) || given.length === 0)
    throw invalid(`${expected}, found ${Array.isArray(given) ? 'an empty list' : shown(given)}`);
  const bad = given.findIndex((row) => typeof row !== 'object' || row === null || Array.isArray(row));
  if (bad >= 0) throw invalid(`${expected}; row ${bad + 1} is ${shown(given[bad])}`);
}
