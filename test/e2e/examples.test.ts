// The examples compile and do what their comments say.
import { spawnSync } from 'node:child_process';
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { beforeAll, expect, test } from 'vitest';
import { expectedOf, expectedTensors, goldenDirectory } from '../models/golden.js';

const root = fileURLToPath(new URL('../..', import.meta.url));

function node(...args: readonly string[]) {
  const { status, stdout, stderr } = spawnSync(process.execPath, args, { cwd: root, encoding: 'utf8' });
  return { status, stdout, stderr };
}

beforeAll(() => {
  expect(node('scripts/build.mjs', '--no-addon', '--bench')).toMatchObject({ status: 0, stderr: '' });
});

test('each says how it is compiled', () => {
  for (const name of readdirSync(join(root, 'examples')))
    expect(readFileSync(join(root, 'examples', name), 'utf8')).toMatch(
      /^ \* {3}node scripts\/build\.mjs --no-addon --bench .*\n \* {3}node build\/ts\/examples\/[\w-]+\.js/m,
    );
});

test('training-step learns its tokens', () => {
  const { status, stdout, stderr } = node('build/ts/examples/training-step.js', goldenDirectory('qwen2'));
  expect({ status, stderr }).toEqual({ status: 0, stderr: '' });
  const losses = [...stdout.matchAll(/^step \d: loss (\S+), gradient norm \S+$/gm)].map((match) =>
    Number(match[1]),
  );
  expect(losses).toHaveLength(5);
  // Near ln 320 at first, since the model is random.
  expect(losses[0]).toBeCloseTo(Math.log(320), 0);
  for (let i = 1; i < 5; i++) expect(losses[i]).toBeLessThan(losses[i - 1] as number);
});

test('score prints the log-probabilities of transformers', () => {
  const sequence = expectedOf('qwen2').sequences[0] as readonly number[];
  const { status, stdout, stderr } = node(
    'build/ts/examples/score.js',
    goldenDirectory('qwen2'),
    sequence.join(' '),
    '8 1',
  );
  expect({ status, stderr }).toEqual({ status: 0, stderr: '' });
  const lines = stdout.trim().split('\n');
  expect(lines).toHaveLength(2);
  const printed = /^sequence 0: (.*); perplexity/
    .exec(lines[0] as string)?.[1]
    ?.split(' ')
    .map(Number);
  const expected = expectedTensors('qwen2').get('logprobs.0') as Float32Array;
  expect(printed).toHaveLength(sequence.length - 1);
  for (const [i, value] of printed!.entries()) expect(value).toBeCloseTo(expected[i] as number, 2);
});

test('generate prints the same samples as events and at the end', () => {
  const { status, stdout, stderr } = node(
    'build/ts/examples/generate.js',
    goldenDirectory('qwen2'),
    '5 17 3',
    '8 1',
  );
  expect({ status, stderr }).toEqual({ status: 0, stderr: '' });
  const lines = stdout.trim().split('\n');
  const whole = lines.flatMap(
    (line) => /^prompt (\d): ([\d ]+); mean log-prob -\d/.exec(line)?.slice(1) ?? [],
  );
  expect(whole).toHaveLength(8);
  const came = ['prompt 0, sample 0', 'prompt 0, sample 1', 'prompt 1, sample 0', 'prompt 1, sample 1'].map(
    (own) =>
      lines.flatMap((line) => (line.startsWith(`${own}: `) ? [line.slice(own.length + 2)] : [])).join(' '),
  );
  expect(whole.filter((_, i) => i % 2 === 1)).toEqual(came);
});

test('judge trains, judges each step and evaluates', () => {
  const folder = mkdtempSync(join(tmpdir(), 'steptrain-example-'));
  try {
    const { status, stdout } = node('build/ts/examples/judge.js', join(folder, 'run'));
    expect(status).toBe(0);
    expect([...stdout.matchAll(/^sft (\d)\/3: loss \d\.\d+$/gm)].map((match) => match[1])).toEqual([
      '1',
      '2',
      '3',
    ]);
    expect(stdout).toMatch(/^19-3=15: (right|wrong|null), right with probability [01]\.\d{3}$/m);
    expect(stdout).toContain('accuracy');
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
});

test('solve rewards each sample', () => {
  const { status, stdout, stderr } = node('build/ts/examples/solve.js');
  expect({ status, stderr }).toEqual({ status: 0, stderr: '' });
  const rewards = [...stdout.matchAll(/^reward (-?\d\.\d\d) for .+$/gm)].map((match) => Number(match[1]));
  expect(rewards).toHaveLength(4);
  // The model of the package solves most problems of level 1.
  expect(Math.max(...rewards)).toBeGreaterThan(0);
});

test('worker scores in threads what the main thread does', () => {
  const { status, stdout, stderr } = node('build/ts/examples/worker.js', goldenDirectory('qwen2'));
  expect({ status, stderr }).toEqual({ status: 0, stderr: '' });
  const alone = node('build/ts/examples/score.js', goldenDirectory('qwen2'), '5 17 3', '8 1');
  const sums = [...alone.stdout.matchAll(/^sequence \d: (.*); perplexity/gm)].map((match) =>
    (match[1] as string).split(' ').reduce((sum, logprob) => sum + Number(logprob), 0),
  );
  const inThreads = [...stdout.matchAll(/^sequence \d: (\S+)$/gm)].map((match) => Number(match[1]));
  expect(inThreads).toHaveLength(2);
  inThreads.forEach((sum, i) => {
    expect(sum).toBeCloseTo(sums[i] as number, 2);
  });
});

test('without a directory they print their usage', () => {
  expect(node('build/ts/examples/score.js').stderr).toMatch(/usage: score\.js DIRECTORY/);
  expect(node('build/ts/examples/generate.js').stderr).toMatch(/usage: generate\.js DIRECTORY/);
  expect(node('build/ts/examples/judge.js').stderr).toMatch(/usage: judge\.js DIRECTORY/);
  expect(node('build/ts/examples/worker.js').stderr).toMatch(/usage: worker\.js DIRECTORY/);
  expect(node('build/ts/examples/training-step.js').stderr).toMatch(/usage: training-step\.js DIRECTORY/);
});
