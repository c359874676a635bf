// `steptrain data s3c`: what it refuses before it draws a sample, and rows of MetaMathQA; test/corrections has what it makes.
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { sharedPath } from '../../shared.js';
import { cli } from '../run-cli.js';

let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'steptrain-data-s3c-'));
});
afterAll(() => rm(folder, { recursive: true, force: true }));

it.each([
  [['quickstart_sft'], /the recipe is one of method sft; name one of method s3c/],
  [
    [
      'qwen2-math-7b_s3c_metamathqa',
      '--set',
      'data.source=word_problems',
      '--set',
      'corrections=none',
      '--set',
      'model.base=embedded',
    ],
    /the recipe has no section corrections, which says how samples are made/,
  ],
])('refuses %j', async ([recipe, ...rest], sentence) => {
  const { code, stderr } = await cli('data', 's3c', recipe as string, join(folder, 'out'), ...rest);
  expect(stderr).toMatch(sentence);
  expect(code).toBe(1);
});

const metamath = sharedPath('data/metamath/sample.jsonl');

it.skipIf(!metamath)('makes samples of rows as MetaMathQA has them (needs ../shared)', async () => {
  const set = [
    ...[`data.train=${metamath}`, 'data.split=[1,0,0]', 'data.max_length=4096'],
    // A model that knows nothing of it: the path alone is looked at.
    ...['model.base=embedded', 'model.dtype=f32', 'run.device=cpu'],
    ...[
      'corrections.sample.max_new_tokens=12',
      'corrections.validate.max_new_tokens=12',
      'corrections.validate.k=2',
    ],
    ...['corrections.validate.require_true_step_pass=false', 'corrections.annotate.teacher=plain'],
  ].flatMap((each) => ['--set', each]);
  const output = join(folder, 'metamath');
  const { code, stdout, stderr } = await cli('data', 's3c', 'qwen2-math-7b_s3c_metamathqa', output, ...set);
  expect(code, stderr).toBe(0);
  expect(`${stdout}${stderr}`).toMatch(/solutions +2\npositions +4/);
  const rows = (await readFile(join(output, 'samples.jsonl'), 'utf8'))
    .trim()
    .split('\n')
    .map((row) => JSON.parse(row));
  expect(rows[0].gold_answer).toMatch(/sqrt/);
  expect(rows[0].steps.at(-1).text).toMatch(/^The answer is: /);
});
