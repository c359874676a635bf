// The page on a reward model: its numbers by hand, and names that are no markup.
import { expect, it } from 'vitest';
import {
  cohensKappa,
  parseRewardQuality,
  rewardQuality,
  type ScoredSolution,
} from '../../src/eval/reward-quality.js';
import { certificate } from '../../src/report/certificate.js';

const solution = (
  problem: string,
  labels: readonly (0 | 1)[],
  scores: readonly number[],
  verdicts: readonly (0 | 1 | null)[],
): ScoredSolution => ({
  record: { problem, steps: labels.map((label, i) => ({ text: `${i}`, label, kind: 'normal' as const })) },
  ...{ scores, verdicts, probabilities: scores },
});
const solutions = [
  solution('a', [1, 1, 0], [0.9, 0.8, 0.3], [1, 1, 0]),
  solution('b', [1, 0], [0.6, 0.7], [1, 1]),
  solution('c', [1, 0], [0.9, 0.1], [1, null]),
];
const options = { scorer: 'reward', unit: 'steps', seconds: 0.7, tokens: 10, weights: 'sha' } as const;

it('says of the same numbers what the report has, as Markdown and HTML', () => {
  const quality = rewardQuality(solutions, { ...options, data: ['<b>|x.jsonl'] });
  // 5 of 6 verdicts agree; labels right in 4 of 6, verdicts in 5 of 6: by chance 20/36 + 2/36.
  expect(quality.agreement).toEqual({
    ...{ n: 6, unjudged: 1, accuracy: 5 / 6 },
    kappa: expect.closeTo((5 / 6 - 22 / 36) / (1 - 22 / 36), 12),
  });
  const squares = [0.1, 0.2, 0.3, 0.4, 0.7, 0.1, 0.1].map((d) => d * d).reduce((a, b) => a + b);
  expect(quality.calibration).toEqual({
    n: 7,
    ece: expect.any(Number),
    brier: expect.closeTo(squares / 7, 12),
  });
  expect(quality.cost.ms_per_step).toBeCloseTo(100, 9);
  expect(quality.shuffled?.pairs).toBe(quality.within_problem.pairs);
  expect(parseRewardQuality(JSON.parse(JSON.stringify(quality)))).toEqual(quality);
  const { md, html } = certificate(quality, { name: 'runs/<i>prm' });
  for (const page of [md, html])
    for (const part of [
      'within a problem',
      'shuffled within a problem',
      'κ 0.57',
      'Brier score',
      '100.00 ms a step',
    ])
      expect(page).toContain(part);
  expect(md).toContain('| within a problem | 75.0 |');
  expect(md).toContain('\\<b\\>\\|x.jsonl');
  expect(html).toContain('runs/&lt;i&gt;prm');
  expect(html).not.toMatch(/<b>|<i>|<script/);
});

it('has a kappa of 0 for one who always says right, and none where there is one class', () => {
  expect(
    cohensKappa([
      { label: 1, verdict: 1 },
      { label: 0, verdict: 1 },
    ]),
  ).toBe(0);
  expect(cohensKappa([{ label: 1, verdict: 1 }])).toBeUndefined();
  expect(
    cohensKappa([
      { label: 1, verdict: 0 },
      { label: 0, verdict: 1 },
    ]),
  ).toBe(-1);
});

it('measures nothing where the scores of a problem are dealt out anew', () => {
  const many = Array.from({ length: 300 }, (_, i) =>
    solution(`${i}`, [1, 1, 0, 0], [0.9, 0.8, 0.2, 0.1], [1, 1, 0, 0]),
  );
  const { within_problem, shuffled } = rewardQuality(many, { ...options, data: [] });
  expect(within_problem.auc).toBe(1);
  expect(Math.abs((shuffled?.auc as number) - 0.5)).toBeLessThan(0.05);
  expect(shuffled?.interval?.[0]).toBeLessThan(0.5);
});
