// The answers of a policy in samples.jsonl.
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { readRollouts } from '../../src/report/rollouts.js';
import { temporaryDirectory } from '../weights/temporary-directory.js';

it('says of a long file from where on it is read, and how many lines cannot be read', () => {
  const path = join(temporaryDirectory(), 'samples.jsonl');
  const row = (iteration: number) =>
    `${JSON.stringify({ iteration, problem: 'p'.repeat(100), answers: [] })}\n`;
  writeFileSync(path, `${row(1)}{broken\n${row(2)}${row(3)}`);
  const whole = readRollouts(path);
  expect(whole.rollouts.map(({ iteration }) => iteration)).toEqual([1, 2, 3]);
  expect(whole.notes).toEqual(['samples.jsonl: 1 lines cannot be read and are left out']);
  const part = readRollouts(path, row(2).length + row(3).length + 3);
  expect(part.rollouts.map(({ iteration }) => iteration)).toEqual([2, 3]);
  expect(part.notes).toEqual([expect.stringContaining('are read, from iteration 2 on')]);
});
