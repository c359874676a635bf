// --quantize in every command that opens a model, also of an adapter whose card says another.
import { cpSync, existsSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { expect, it } from 'vitest';
import { fileWith } from '../data/data-file.js';
import { temporaryDirectory } from '../weights/temporary-directory.js';
import { cli, type Outcome } from './run-cli.js';

const problem = 'At first Bob has 19 apples. Mia gives 17 to Bob. How many apples does Bob have at the end?';
const steps = ['Bob: 19 + 17 = 36', 'Bob: 36 + 1 = 38'];
const solution = fileWith('solution.txt', `${problem}\n\n${steps.join('\n')}\n`);
const rows = fileWith('rows.jsonl', `${JSON.stringify({ problem, steps, labels: [1, 0] })}\n`);

/** The judge of the package, trained as this card says. */
function judgeOn(quantize: string): string {
  const adapter = join(temporaryDirectory(), 'judge');
  cpSync(resolve('assets/word-problems-judge'), adapter, { recursive: true });
  const path = join(adapter, 'steptrain.json');
  writeFileSync(path, JSON.stringify({ ...JSON.parse(readFileSync(path, 'utf8')), quantize }));
  return adapter;
}

const commands: Readonly<Record<string, (judge: string, ...more: string[]) => Promise<Outcome>>> = {
  judge: (judge, ...more) => cli('judge', judge, solution, '--json', ...more),
  score: (judge, ...more) => cli('score', rows, '--model', judge, ...more),
  generate: (judge, ...more) =>
    cli(...['generate', problem, '--model', judge, '--max-new-tokens', '4', '--json'], ...more),
  'eval correction': (judge, ...more) => cli('eval', 'correction', judge, '--data', rows, '--json', ...more),
  'eval reward-model': (judge, ...more) =>
    cli('eval', 'reward-model', rows, '--model', judge, '--json', ...more),
};

it('eval reward-model measures the adapter on top of --model, and writes beside it', async () => {
  const judge = judgeOn('none');
  const measured = async (...named: readonly string[]) => {
    const { code, stdout } = await cli(
      ...['eval', 'reward-model', rows, ...named, '--json', '--device', 'cpu'],
    );
    expect(code).toBe(0);
    const { cost: _, ...quality } = JSON.parse(stdout);
    return quality;
  };
  const alone = await measured('--model', judge);
  rmSync(join(judge, 'reward-quality.json'));
  expect(await measured('--model', 'word-problems-attempts', '--adapter', judge)).toEqual(alone);
  expect(existsSync(join(judge, 'reward-quality.json'))).toBe(true);
});

it.each(Object.keys(commands))(
  'opens an adapter that was trained on int8 on floats too: %s',
  async (name) => {
    const command = commands[name]!;
    const judge = judgeOn('int8');
    const scores = new Set<string>();
    for (const chosen of [[], ['--quantize', 'none']]) {
      const { code, stdout, stderr } = await command(judge, '--device', 'cpu', ...chosen);
      expect([code, stderr]).toEqual([0, expect.not.stringContaining('quantize')]);
      scores.add(stdout);
    }
    expect(name === 'generate' || scores.size === 2).toBe(true);
  },
);
