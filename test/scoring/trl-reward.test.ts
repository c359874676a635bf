// A classifier of sequences that TRL 1.13's RewardTrainer trained, beside its scores there (test/golden/trl_reward).
import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it, vi } from 'vitest';
import { openScorer } from '../../src/scoring/open.js';
import { goldenDirectory } from '../models/golden.js';
import { openTest } from '../ops/devices.js';
import { maxDifference } from '../ops/numbers.js';

const DIRECTORY = goldenDirectory('trl_reward');
const golden = JSON.parse(readFileSync(join(DIRECTORY, 'expected.json'), 'utf8')) as readonly {
  readonly problem: string;
  readonly text: string;
  readonly score: number;
}[];
const solutions = golden.map(({ problem, text }) => ({ problem, text, steps: text.split('\n') }));
const expected = golden.map(({ score }) => score);

const device = openTest();
let folder: string;
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'steptrain-trl-reward-'));
});
afterAll(() => {
  device.dispose();
  rmSync(folder, { recursive: true, force: true });
});

function trained(card?: object): string {
  const directory = mkdtempSync(join(folder, 'model-'));
  cpSync(DIRECTORY, directory, { recursive: true });
  if (card) writeFileSync(join(directory, 'steptrain.json'), JSON.stringify(card));
  return directory;
}

/** Scores, and the sentences that were said. */
async function scoresOf(directory: string) {
  const said = vi.spyOn(console, 'error').mockImplementation(() => {});
  const scorer = await openScorer(device, directory, { dtype: 'f32' });
  const found = (await scorer.score(solutions))!.map(({ outcome }) => outcome as number);
  scorer.dispose();
  const lines = said.mock.calls.flat().join('\n');
  said.mockRestore();
  return { found, lines };
}

const judge = { kind: 'classifier', max_length: 256, threshold: 'greedy' };

it('has the scores that it has in TRL where its card says how its texts end', async () => {
  const card = { method: 'trl', judge: { ...judge, template: '{problem}\n{solution}', add_eos_token: true } };
  const { found, lines } = await scoresOf(trained(card));
  expect(maxDifference(found, expected)).toBeLessThan(1e-5);
  expect(lines).toBe('');
});

it('is proposed that card where it has none, and read as it was not trained', async () => {
  const directory = trained();
  const { found, lines } = await scoresOf(directory);
  expect(maxDifference(found, expected)).toBeGreaterThan(0.1);
  expect(lines).toContain("if TRL's RewardTrainer trained it");
  const [, card] = /write (\{.*\}) into/.exec(lines)!;
  writeFileSync(join(directory, 'steptrain.json'), card!);
  expect(maxDifference((await scoresOf(directory)).found, expected)).toBeLessThan(1e-5);
});

it('reads a text of its own template, and none beyond its length', async () => {
  const other = { ...judge, template: '{problem} {solution} ', add_eos_token: true };
  expect(
    maxDifference((await scoresOf(trained({ method: 'trl', judge: other }))).found, expected),
  ).toBeGreaterThan(0.01);
  const short = await scoresOf(trained({ method: 'trl', judge: { ...judge, max_length: 20 } }));
  expect(new Set(short.found)).toEqual(new Set([null]));
});

it('is refused where its tokenizer has no such token, or its template no place for the solution', async () => {
  const directory = trained({ method: 'trl', judge: { ...judge, add_eos_token: true } });
  for (const file of ['config.json', 'tokenizer_config.json']) {
    const path = join(directory, file);
    const { eos_token_id: _, eos_token: __, ...rest } = JSON.parse(readFileSync(path, 'utf8'));
    writeFileSync(path, JSON.stringify(rest));
  }
  await expect(openScorer(device, directory, { dtype: 'f32' })).rejects.toThrow(
    'its card says add_eos_token, and its tokenizer has no end-of-text token',
  );
  const placeless = { ...judge, template: '{problem}' };
  await expect(
    openScorer(device, trained({ method: 'trl', judge: placeless }), { dtype: 'f32' }),
  ).rejects.toThrow(/steptrain\.json: judge\.template: /);
});
