import { join } from 'node:path';
import { expect, it } from 'vitest';
import { overoptimized } from '../../../src/methods/ppo/overoptimized.js';
import { cli } from '../../cli/run-cli.js';
import { temporaryDirectory } from '../../weights/temporary-directory.js';

const PROBLEMS = 125;
const log = (rewards: readonly number[], solved: readonly number[]) => [
  { phase: 'base', phase_step: 1, accuracy: 1, reward_mean: 9 },
  ...solved.map((accuracy, i) => ({ phase: 'ppo', phase_step: 10 * i, accuracy })),
  ...rewards.map((reward_mean, i) => ({ phase: 'ppo', phase_step: 3 * (i + 1), reward_mean })),
  { phase: 'test', accuracy: 0.7 },
];

// Runs of quickstart_turns: with a trained judge on every turn, with it on the last turn, with the outcome alone.
const JUDGED = [3.22, 3.2, 3.08, 3.63, 3.88, 4.21, 3.8, 3.8, 3.92, 4.05];
const LAST = [0.85, 0.77, 0.83, 1.03, 1.13, 1.17, 1.07, 1.16, 1.17, 1.01];
const OUTCOME = [0.48, 0.34, 0.42, 0.58, 0.61, 0.5, 0.55, 0.62, 0.61, 0.48];

it('is a reward that rises while validation falls by more than its noise', () => {
  // Means of the first three and of the other seven.
  expect(overoptimized(log(JUDGED, [0.496, 0.752, 0.68, 0.456]), PROBLEMS)).toMatch(
    /^the mean reward rose from 3\.17 up to step 10 to 3\.9 after it, and validation fell from 75\.2 % solved at step 10 to 45\.6 % at the end/,
  );
  // From the first step on.
  expect(overoptimized(log([1, 2, 3], [0.8, 0.4]), PROBLEMS)).toContain('rose from 1 up to step 0 to 2.5');
});

it('is no noise, no policy that holds, and no reward that falls too', () => {
  expect(overoptimized(log(LAST, [0.496, 0.72, 0.744, 0.752]), PROBLEMS)).toBeUndefined();
  expect(overoptimized(log(OUTCOME, [0.496, 0.704, 0.76, 0.76]), PROBLEMS)).toBeUndefined();
  // Two errors of 75.2 − 68.0 are 11.4 points for 125 problems, and 5.7 for 500.
  expect(overoptimized(log(JUDGED, [0.496, 0.752, 0.68]), PROBLEMS)).toBeUndefined();
  expect(overoptimized(log(JUDGED, [0.496, 0.752, 0.68]), 4 * PROBLEMS)).toBeDefined();
  expect(overoptimized(log(JUDGED.toReversed(), [0.496, 0.752, 0.3]), PROBLEMS)).toBeUndefined();
  expect(overoptimized(log([1], [0.8, 0.4]), PROBLEMS)).toBeUndefined();
  expect(overoptimized(log(JUDGED, []), 0)).toBeUndefined();
});

it('is said at the end of a run that is paid for wrong answers', async () => {
  const settings = {
    'reward.environment.weight': -1,
    'reward.oracle.weight': 0,
    'reward.placement': 'last',
    'ppo.max_iterations': 10,
    'ppo.learning_rate': 1e-3,
    'ppo.kl_coef': 0,
    'data.word_problems.samples': 300,
    'eval.max_samples': 60,
  };
  const set = Object.entries(settings).flatMap(([key, value]) => ['--set', `${key}=${value}`]);
  const run = join(temporaryDirectory(), 'run');
  const { code, stderr } = await cli('run', 'quickstart_turns', '--output', run, ...set);
  expect(code, stderr).toBe(0);
  expect(stderr.replace(/\s+/g, ' ')).toMatch(
    /the mean reward rose from \S+ up to step 0 to \S+ after it, and validation fell from 43\.3 % solved at step 0 to /,
  );
});
