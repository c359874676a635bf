// What the tests of rounds have in common: a small run on the shipped model, its folder, and what it leaves there.
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, vi } from 'vitest';
import type { RunConfigInput } from '../../../../src/methods/table.js';

type Sections = Readonly<Record<string, object | string>>;

/** A method in rounds on generated problems; the keys of `sections` are laid on those that are here, but other data take their place. */
export function smallRounds(method: string, sections: Sections = {}): RunConfigInput {
  const usual: Sections = {
    model: { base: 'word-problems-misread' },
    lora: { r: 4, lora_alpha: 8, lora_dropout: 0 },
    data: { source: 'word_problems', word_problems: { samples: 60 }, max_length: 320 },
    question: { template: '{problem}\n' },
    sampling: { num_generations: 3, max_new_tokens: 100 },
    run: { device: 'cpu', threads: 1 },
  };
  const laid = Object.entries(sections).map(([name, own]) => {
    const below = name === 'data' ? undefined : usual[name];
    return [name, typeof own === 'object' && typeof below === 'object' ? { ...below, ...own } : own];
  });
  return { method, ...usual, ...Object.fromEntries(laid) } as unknown as RunConfigInput;
}

/** A folder for the runs of a file, which print nothing. */
export function runsFolder(name: string): (path: string) => string {
  let folder: string;
  beforeAll(async () => {
    vi.spyOn(console, 'error').mockImplementation(() => {});
    folder = await mkdtemp(join(tmpdir(), `steptrain-${name}-`));
  });
  afterAll(() => rm(folder, { recursive: true, force: true }));
  return (path) => join(folder, path);
}

/** The rows of a .jsonl file of a run. */
export async function rowsOf<Row = ReturnType<typeof JSON.parse>>(
  directory: string,
  file: string,
): Promise<Row[]> {
  const text = await readFile(join(directory, file), 'utf8');
  return text
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line));
}

export const artefact = <Row = ReturnType<typeof JSON.parse>>(directory: string, name: string) =>
  rowsOf<Row>(directory, `artefacts/${name}.jsonl`);
