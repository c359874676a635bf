// A run that an earlier version began, whose config.yaml and inputs.json have keys that are no longer there.
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { beforeEach, expect, it, onTestFinished, vi } from 'vitest';
import { completeRunConfig } from '../../src/methods/config.js';
import { createRun, openRun } from '../../src/methods/run.js';
import { temporaryDirectory } from '../weights/temporary-directory.js';

let directory: string;
let said: string[];

beforeEach(async () => {
  directory = join(temporaryDirectory(), 'run');
  const config = completeRunConfig({
    method: 'ppo',
    model: { base: 'word-problems' },
    data: { source: 'word_problems', word_problems: { samples: 20 } },
    reward: { steps: { weight: 1, model: '/runs/prm' } },
  });
  const { run } = await createRun(config, (path) => path.join('.'), { output: directory });
  await run.close();
  said = [];
  const spy = vi.spyOn(console, 'error').mockImplementation((line: string) => {
    said.push(line);
  });
  onTestFinished(() => spy.mockRestore());
});

const rewrite = (name: string, from: string | RegExp, to: string) => {
  const file = join(directory, name);
  const before = readFileSync(file, 'utf8');
  const after = before.replace(from, to);
  expect(after).not.toBe(before);
  writeFileSync(file, after);
};

/** As an earlier version wrote it into the section of `samples`. */
function withKey(name: string, value: number): void {
  rewrite('config.yaml', /^( +)samples: 20$/m, `$1samples: 20\n$1${name}: ${value}`);
  rewrite('inputs.json', /"data\.word_problems\.samples": 20,/, `$&"data.word_problems.${name}": ${value},`);
}

const open = async () => {
  const { config, run } = await openRun(directory);
  await run.close();
  return config;
};

it('goes on without a removed key that asked for nothing, and says so', async () => {
  withKey('correction_rate', 0);
  await open();
  expect(said).toEqual([
    expect.stringMatching(
      /config\.yaml:\d+:\d+: data\.word_problems\.correction_rate is no longer a key, and 0 asked for nothing$/,
    ),
  ]);
});

it('names a removed key that asked for something, and what to do', async () => {
  withKey('correction_rate', 0.2);
  await expect(open()).rejects.toThrow(
    /config\.yaml:\d+:\d+: data\.word_problems\.correction_rate is no longer a key, found the number 0\.2; .*set it to 0, or remove it$/,
  );
});

it('goes on with a key that has another name now', async () => {
  rewrite('config.yaml', /^( +)model: \/runs\/prm$/m, '$1run: /runs/prm');
  rewrite('inputs.json', '"reward.steps.model"', '"reward.steps.run"');
  expect(await open()).toMatchObject({ reward: { steps: { model: '/runs/prm' } } });
  expect(said).toEqual([expect.stringMatching(/reward\.steps\.run is reward\.steps\.model now$/)]);
  // It is compared under that name.
  rewrite('config.yaml', '/runs/prm', '/runs/other');
  await expect(open()).rejects.toThrow(/reward\.steps\.model is "\/runs\/other" and was "\/runs\/prm"/);
});

it('names a key that nobody knows any more; taken out of config.yaml, it stops nothing', async () => {
  withKey('spin', 3);
  await expect(open()).rejects.toThrow(
    /config\.yaml:\d+:\d+: unknown key "spin" in data\.word_problems; .*; another version may have begun this run: go on with that one, or remove the key from config\.yaml if its value does not matter$/,
  );
  rewrite('config.yaml', /^ +spin: 3\n/m, '');
  await open();
  expect(said).toEqual(['no keys of this version, and left out: data.word_problems.spin 3']);
  // Noted once: inputs.json no longer has it.
  said = [];
  await open();
  expect(said).toEqual([]);
});

it('still refuses where a key of this version is gone or another', async () => {
  rewrite('inputs.json', /"data\.word_problems\.samples": 20,/, '"data.word_problems.samples": 30,');
  await expect(open()).rejects.toThrow(/data\.word_problems\.samples is 20 and was 30/);
});

it('goes on where sections and keys had other names, and compares them under those of today', async () => {
  directory = join(temporaryDirectory(), 'run');
  const config = completeRunConfig({
    method: 'reward',
    model: { base: 'word-problems' },
    data: { source: 'word_problems', word_problems: { samples: 20 } },
    reward_model: { head_rate: 3 },
    eval_scores: { threshold: 0.4 },
  });
  const { run } = await createRun(config, (path) => path.join('.'), { output: directory });
  await run.close();
  said = [];
  rewrite('config.yaml', /^reward_model:$/m, 'reward:');
  rewrite('inputs.json', /"reward_model\./g, '"reward.');
  const scores = /^ +(neutral|after_error|threshold): .*$/gm;
  const [own] = readFileSync(join(directory, 'config.yaml'), 'utf8')
    .split(/^eval_scores:$/m)
    .slice(1);
  const moved = own?.match(scores)?.join('\n') ?? '';
  expect(moved.split('\n')).toHaveLength(3);
  rewrite('config.yaml', /^eval_scores:\n(?: .*\n|\n)*/m, '');
  rewrite('config.yaml', /^eval:$/m, `eval:\n${moved}`);
  rewrite('inputs.json', /"eval_scores\./g, '"eval.');
  expect(await open()).toMatchObject({ reward_model: { head_rate: 3 }, eval_scores: { threshold: 0.4 } });
  expect(said).toEqual([
    expect.stringMatching(
      /config\.yaml: reward is reward_model now, eval\.neutral is eval_scores\.neutral now, .*eval\.threshold is eval_scores\.threshold now$/,
    ),
  ]);
  rewrite('config.yaml', 'head_rate: 3', 'head_rate: 4');
  await expect(open()).rejects.toThrow(/reward_model\.head_rate is 4 and was 3/);
});
