// steptrain data problems, and what data stats says of generated problems.
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { judgeSolution } from '../../../src/data/problems/oracle.js';
import type { WordProblem } from '../../../src/data/problems/problem.js';
import { rightSolution } from '../../../src/data/problems/solution.js';
import { temporaryDirectory } from '../../weights/temporary-directory.js';
import { cli } from '../run-cli.js';

it('writes rows that the oracle can judge by', async () => {
  const path = join(temporaryDirectory(), 'level2.jsonl');
  const { code, stdout } = await cli(
    'data',
    'problems',
    path,
    '--level',
    '2',
    '--count',
    '20',
    '--seed',
    '3',
  );
  expect([code, stdout.trim()]).toEqual([0, `20 problems are in ${path}`]);
  const rows = readFileSync(path, 'utf8')
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line) as WordProblem);
  expect(rows).toHaveLength(20);
  for (const row of rows) {
    expect([row.level, row.part]).toEqual([2, 'test']);
    expect(judgeSolution(row, rightSolution(row)).isAnswerRight).toBe(true);
  }
  const again = await cli('data', 'problems', path);
  expect(again.stderr).toBe(`${path} is there already; choose another file`);
  expect((await cli('data', 'problems', 'out.txt')).stderr).toContain(
    'expected a file name that ends in .jsonl',
  );
});

it('says how much of the held-out arithmetic training has not seen', async () => {
  const { stdout } = await cli(
    'data',
    'stats',
    'pretrain_word_problems',
    '--set',
    'data.word_problems.samples=600',
    '--set',
    'data.split=[6,2,2]',
  );
  const share = /test steps whose computation is in no training step: (\d+) of (\d+) \(([\d.]+) %\)/.exec(
    stdout,
  );
  expect(Number(share?.[2])).toBeGreaterThan(200);
  expect(Number(share?.[3])).toBeGreaterThan(50);
  expect(stdout).toContain('validation steps whose computation');
});
