// A run is asked as it was trained, unless an option says otherwise.
import { copyFileSync, mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, expect, it } from 'vitest';
import { runWords } from '../../../src/cli/eval/run-words.js';

const folder = mkdtempSync(join(tmpdir(), 'steptrain-words-'));
afterAll(() => rmSync(folder, { recursive: true }));

function runOf(recipe: string): string {
  const run = join(folder, recipe);
  mkdirSync(run, { recursive: true });
  copyFileSync(join(import.meta.dirname, `../../../recipes/${recipe}.yaml`), join(run, 'config.yaml'));
  return run;
}

it('takes template and corrections of a run that corrects itself', async () => {
  const run = runOf('quickstart_s3c');
  const words = await runWords({ run });
  expect(words).toMatchObject({ template: '{problem}\n', chat: false, corrections: { scope: 'step' } });
  expect(await runWords({ run, template: 'Solve: {problem}', corrections: false })).toEqual({
    template: 'Solve: {problem}',
    chat: undefined,
    corrections: undefined,
  });
  expect((await runWords({ run, chat: true })).template).toBeUndefined();
  expect((await runWords({ run, system: 'Be brief.' })).template).toBeUndefined();
});

it.each(['quickstart_step_kto', 'quickstart_reinforce'])(
  '%s: takes the template of its section',
  async (name) => {
    const { template, chat, corrections } = await runWords({ run: runOf(name) });
    expect([template, chat, corrections]).toEqual(['{problem}\n', false, undefined]);
  },
);

it('leaves the usual words to runs that solve nothing, and to models', async () => {
  const usual = { template: undefined, chat: undefined, corrections: undefined };
  expect(await runWords({ run: runOf('quickstart') })).toEqual(usual);
  expect(await runWords({})).toEqual(usual);
  expect(await runWords({ corrections: true })).toEqual({ ...usual, corrections: {} });
});
