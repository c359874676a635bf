// What the card beside an adapter says of it as a judge.
import { expect, it } from 'vitest';
import type { LikelihoodVerdicts } from '../../src/eval/likelihood-weights.js';
import { confusionMetrics } from '../../src/eval/metrics.js';
import type { EvalReport } from '../../src/eval/report.js';
import { readCard, writeCard } from '../../src/models/card.js';
import type { StepRecord } from '../../src/records/record.js';
import { keepJudge } from '../../src/train/kept-judge.js';
import { temporaryDirectory } from '../weights/temporary-directory.js';

const right: StepRecord = {
  problem: 'p',
  steps: [{ text: 'Tom: 12 + 7 = 19', label: 1, kind: 'normal' }],
};
const wrong: StepRecord = {
  problem: 'q',
  steps: [{ text: 'Tom: 12 + 7 = 18', label: 0, kind: 'normal' }],
};
const weights = { constant: 1, verdict: 0, least: 2, before: 0 };
const found = (more: Partial<LikelihoodVerdicts> = {}): LikelihoodVerdicts => ({
  weights,
  words: [],
  both: [],
  validation: [],
  ...more,
});

const reportOf = (auc: number, more: Partial<EvalReport> = {}) =>
  ({
    method: 'sft',
    metrics: { ...confusionMetrics({ tp: 10, fn: 10, fp: 10, tn: 10 }), invalid: 0, auc },
    ...more,
  }) as EvalReport;

async function kept(
  settings: Omit<Parameters<typeof keepJudge>[1], 'records'>,
  records: readonly StepRecord[] = [right, wrong],
) {
  const folder = temporaryDirectory();
  await writeCard(folder, { method: 'sft', dtype: 'f32', judge: { kind: 'verdict' } });
  await keepJudge(folder, { ...settings, records });
  return readCard(folder)?.judge;
}

it('keeps the weights, with the forms and words of the steps where the base reads them', async () => {
  const report = reportOf(0.9);
  expect(await kept({ likelihood: found(), report, isUntrained: false })).toEqual({
    kind: 'verdict',
    likelihood: weights,
    forms: ['Tom: 12 + 7 = 19'],
    words: ['Tom'],
  });
  const computed = { ...weights, of: 'calculations' as const };
  expect(await kept({ likelihood: found({ weights: computed }), report, isUntrained: false })).toEqual({
    kind: 'verdict',
    likelihood: computed,
  });
  expect(await kept({ likelihood: undefined, report, isUntrained: false })).toEqual({ kind: 'verdict' });
});

it('keeps no weights at chance, and warns of what is chance or the base as it was', async () => {
  const likelihood = found({ isChance: true });
  const chance = { likelihood: { kept: false } } as Partial<EvalReport>;
  const judge = await kept({ likelihood, report: reportOf(0.52, chance), isUntrained: true });
  expect(judge).toEqual({
    kind: 'verdict',
    warnings: [
      'no evaluation of its training was better than that of the start: it is the base as it was',
      'on 40 held-out steps AUC 52.0 is chance',
    ],
  });
});

it('warns of a judge that learned from one class', async () => {
  const settings = { likelihood: undefined, report: reportOf(0.9), isUntrained: false };
  for (const [record, class_] of [
    [right, 'right'],
    [wrong, 'wrong'],
  ] as const)
    expect((await kept(settings, [record, record]))?.warnings).toEqual([
      `every step that it learned from was ${class_}, and a verdict cannot be learned from one class`,
    ]);
});

it('does not warn of words that nobody goes by', async () => {
  const good = { likelihood: { weights }, words: reportOf(0.5) } as Partial<EvalReport>;
  const judge = await kept({ likelihood: found(), report: reportOf(0.97, good), isUntrained: true });
  expect(judge?.warnings).toBeUndefined();
});
