// Samples on disk: stopped at any point and continued, they are the same bytes.
import { appendFile, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { openSampleFile } from '../../src/corrections/file.js';
import { type SourceSolution, sourceSolution } from '../../src/corrections/solution.js';
import { makeIntoFile } from '../../src/corrections/stream.js';
import { oracleTeacher } from '../../src/corrections/teacher.js';
import { wordProblems } from '../../src/data/problems/generate.js';
import { solutionRecord } from '../../src/data/problems/records.js';
import { fakeSource, tools } from './fake-source.js';

let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'steptrain-corrections-'));
});
afterAll(() => rm(folder, { recursive: true, force: true }));

const SOLUTIONS = Array.from(wordProblems({ seed: 3, samples: 40 }), (word, i) =>
  sourceSolution(solutionRecord(word, []), i, word),
) as SourceSolution[];
const stream = async function* () {
  yield* SOLUTIONS;
};
/** A slip in every step, and no end: everything that it writes is wrong. */
const slips = fakeSource((prompt, sample, id) => {
  const { steps } = SOLUTIONS.find(({ problem }) => prompt.startsWith(`${problem}\n`)) as SourceSolution;
  const written = prompt.trimEnd().split('\n').length - 1;
  const right = steps[written] ?? '';
  return `${right.replace(/\d+$/, (number) => String(Number(number) + 1 + ((sample + id) % 3)))}\n`;
});
const CHANGES = { chunk: 7, validate: { k: 1, require_true_step_pass: false } };
const make = async (directory: string, signal?: AbortSignal, chunk = 7) => {
  const file = await openSampleFile(directory, { seed: 1 });
  try {
    const whole = await makeIntoFile(stream(), file, tools(slips, { ...CHANGES, chunk }, oracleTeacher()), {
      ...(signal ? { signal } : {}),
    });
    return { whole, solutions: file.solutions, tally: file.tally.state };
  } finally {
    await file.close();
  }
};
const samples = (directory: string) => readFile(join(directory, 'samples.jsonl'), 'utf8');

it('goes on where it was stopped, with the same samples and counts, in chunks of any size', async () => {
  const whole = join(folder, 'whole');
  const done = await make(whole);
  expect(done).toMatchObject({ whole: true, solutions: 40 });
  expect((await samples(whole)).split('\n').length).toBeGreaterThan(80);

  const stopped = join(folder, 'stopped');
  const controller = new AbortController();
  const original = slips.sample.bind(slips);
  let calls = 0;
  slips.sample = (prompts, options) => {
    if (++calls === 4) controller.abort();
    return original(prompts, options);
  };
  expect(await make(stopped, controller.signal)).toMatchObject({ whole: false, solutions: 7 });
  slips.sample = original;
  // A chunk that was being written when the process died.
  await appendFile(join(stopped, 'samples.jsonl'), '{"problem":"half a chunk","steps":[]}\n{"prob');
  const resumed = await make(stopped, undefined, 5);
  expect(resumed).toEqual(done);
  expect(await samples(stopped)).toBe(await samples(whole));
});

it('refuses a directory with samples of other settings, naming the first', async () => {
  const directory = join(folder, 'settings');
  await (await openSampleFile(directory, { seed: 1, temperature: 1.2 })).close();
  await expect(openSampleFile(directory, { seed: 1, temperature: 1 })).rejects.toThrow(
    /holds samples with other settings: temperature was 1.2 and is 1 now/,
  );
  const strange = join(folder, 'strange');
  await (await openSampleFile(strange, {})).close();
  await rm(join(strange, 'settings.json'));
  await writeFile(join(strange, 'samples.jsonl'), '{}\n');
  await expect(openSampleFile(strange, {})).rejects.toThrow(/has a samples.jsonl and no settings.json/);
});
