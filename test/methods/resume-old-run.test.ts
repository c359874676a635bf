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

it('names the runtime that began the run where another one goes on', async () => {
  await open();
  expect(said).toEqual([]);
  rewrite('inputs.json', `"runtime": "Node ${process.versions.node}"`, '"runtime": "Bun 1.4.5"');
  await open();
  expect(said).toEqual([`changed: Bun 1.4.5 began this run, and Node ${process.versions.node} goes on`]);
});
