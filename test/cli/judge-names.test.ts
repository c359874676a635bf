// A judge has one name in every command.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { expect, it } from 'vitest';
import { fileWith } from '../data/data-file.js';
import { temporaryDirectory } from '../weights/temporary-directory.js';
import { cli } from './run-cli.js';

const problem = 'At first Bob has 19 apples. Mia gives 17 to Bob. How many apples does Bob have at the end?';
const step = 'Bob: 19 + 17 = 36';
const CPU = ['--device', 'cpu'];
const solution = fileWith('solution.txt', `${problem}\n\n${step}\n`);
const rows = fileWith('rows.jsonl', `${JSON.stringify({ problem, steps: [step], labels: [1] })}\n`);
const names = ['word-problems-judge', resolve('assets/word-problems-judge'), rows];

/** The probability that each command gives the step. */
const commands: Readonly<Record<string, (name: string) => Promise<number>>> = {
  async judge(name) {
    const { stdout } = await cli('judge', name, solution, '--json', ...CPU);
    return JSON.parse(stdout).steps[0].probability;
  },
  async score(name) {
    const { stdout } = await cli('score', rows, '--model', name, ...CPU);
    return JSON.parse(stdout).scores[0];
  },
  async 'eval correction'(name) {
    const output = temporaryDirectory();
    await cli('eval', 'correction', name, '--data', rows, '--output', output, ...CPU);
    return JSON.parse(readFileSync(join(output, 'verdicts.jsonl'), 'utf8')).probability;
  },
  async serve(name) {
    const command = [resolve('dist/cli/main.js'), 'serve', 'embedded', '--judge', name];
    const server = spawn(process.execPath, [...command, '--port', '0', '--cache-gb', '0.01', ...CPU]);
    const [line] = await once(server.stdout, 'data');
    const [url] = /http\S+(?=\/v1;)/.exec(String(line)) ?? [];
    const response = await fetch(`${url}/score`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ problem, steps: [step] }),
    });
    server.kill('SIGTERM');
    const found = (await response.json()) as { data: { scores: number[] }[] };
    await once(server, 'exit');
    return found.data[0]!.scores[0]!;
  },
};

it.each(Object.keys(commands))('means the same in steptrain %s', async (command) => {
  const found: number[] = [];
  for (const name of names) found.push(await commands[command]!(name));
  // Of words alone in an evaluation, which tells of the likelihood beside them.
  expect(found[0]).toBeGreaterThan(0.7);
  expect(found).toEqual([found[0], found[0], 1]);
});
