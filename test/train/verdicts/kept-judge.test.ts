// What the card beside an adapter says of it as a judge.
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { inMemory } from '../../../src/data/dataset.js';
import type { LikelihoodVerdicts } from '../../../src/eval/likelihood-weights.js';
import type { EvalReport } from '../../../src/eval/reports/eval-report.js';
import { confusionMetrics } from '../../../src/eval/statistics/metrics.js';
import { readCard, writeCard } from '../../../src/models/card.js';
import type { StepRecord } from '../../../src/records/record.js';
import type { RunDirectory } from '../../../src/run/directory.js';
import { keepJudge, keepStop, keepThreshold } from '../../../src/train/verdicts/kept-judge.js';
import { temporaryDirectory } from '../../weights/temporary-directory.js';

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
  settings: Omit<Parameters<typeof keepJudge>[1], 'records' | 'labels'>,
  validation: readonly StepRecord[] = [right, wrong],
  train = validation,
  labels = { positive: 1, negative: 1 },
) {
  const records = { train: inMemory(train), validation: inMemory(validation) };
  const folder = temporaryDirectory();
  await writeCard(folder, { method: 'sft', dtype: 'f32', judge: { kind: 'verdict' } });
  await keepJudge(folder, { ...settings, labels, records });
  return readCard(folder)?.judge;
}

it('keeps the weights, with the forms and words of the steps where the base reads them', async () => {
  const report = reportOf(0.9);
  expect(await kept({ likelihood: found(), report, isUntrained: false })).toEqual({
    kind: 'verdict',
    likelihood: weights,
    forms: ['Tom: 12 + 7 = 19'],
    words: ['Tom'],
    word_pairs: ['p ¶', 'q ¶', '¶ p q'],
  });
  const computed = { ...weights, of: 'calculations' as const };
  expect(await kept({ likelihood: found({ weights: computed }), report, isUntrained: false })).toEqual({
    kind: 'verdict',
    likelihood: computed,
  });
  expect(await kept({ likelihood: undefined, report, isUntrained: false })).toEqual({ kind: 'verdict' });
});

it('keeps pairs of words where training has those of other problems, and few enough', async () => {
  const settings = { likelihood: found(), report: reportOf(0.9), isUntrained: false };
  const of = (...problems: readonly string[]) => problems.map((problem) => ({ ...right, problem }));
  const many = Array.from({ length: 99 }, () => 'Tom has 1 pen.');
  const pairs = async (validation: readonly string[], train: readonly string[]) =>
    (await kept(settings, of(...validation), of(...train)))?.word_pairs;
  const both = ['# pen', '. ¶', 'Tom finds has', 'finds #', 'has #', 'pen .', '¶ Tom'];
  expect(await pairs([...many, 'Tom finds 2 pen.'], many)).toEqual(both);
  expect(await pairs([...many, ...many, 'Tom finds 2 pen.', 'Tom loses 2 pen.'], many)).toEqual([
    ...both.slice(0, 2),
    'Tom finds has loses',
    ...both.slice(3, 5),
    'loses #',
    ...both.slice(5),
  ]);
  expect(await pairs([...many, 'Tom finds 2 pen.', 'Tom loses 2 pen.'], many)).toBeUndefined();
  const free = Array.from({ length: 70 }, (_, i) => 'ab'.repeat(i + 1));
  const text = free.map((word) => free.map((next) => `${word} ${next}`).join(' '));
  expect(await pairs(text, text)).toBeUndefined();
});

it('keeps no weights at chance, and warns of what is chance or the base as it was', async () => {
  const likelihood = found({ isChance: true });
  const chance = { likelihood: { kept: false } } as Partial<EvalReport>;
  const judge = await kept({ likelihood, report: reportOf(0.52, chance), isUntrained: true });
  expect(judge).toEqual({
    kind: 'verdict',
    warnings: [
      'no evaluation of its training was better than that of the start: it is the base as it was',
      'on 40 held-out steps AUC 52.0 is not told apart from chance',
    ],
  });
});

it('warns of a judge that learned from one class', async () => {
  const settings = { likelihood: undefined, report: reportOf(0.9), isUntrained: false };
  for (const [labels, class_] of [
    [{ positive: 2, negative: 0 }, 'right'],
    [{ positive: 0, negative: 2 }, 'wrong'],
  ] as const)
    expect((await kept(settings, undefined, undefined, labels))?.warnings).toEqual([
      `every step that it learned from was ${class_}, and a verdict cannot be learned from one class`,
    ]);
  // Validation steps of one class say nothing of those that were learned.
  expect((await kept(settings, [right], [right, wrong]))?.warnings).toBeUndefined();
});

it('does not warn of words that nobody goes by', async () => {
  const good = { likelihood: { weights }, words: reportOf(0.5) } as Partial<EvalReport>;
  const judge = await kept({ likelihood: found(), report: reportOf(0.97, good), isUntrained: true });
  expect(judge?.warnings).toBeUndefined();
});

it('keeps the threshold of a reward model, and what held-out steps do not show', async () => {
  const path = temporaryDirectory();
  const run = { path, file: (name: string) => join(path, name) } as RunDirectory;
  for (const name of ['adapter', 'reward']) mkdirSync(run.file(name));
  const card = { method: 'reward', dtype: 'f32', judge: { kind: 'reward_model' } } as const;
  await writeCard(run.file('adapter'), card);
  await keepThreshold(run, 0.11, reportOf(0.52));
  expect(readCard(run.file('adapter'))?.judge).toEqual({
    kind: 'reward_model',
    threshold: 0.11,
    warnings: ['on 40 held-out steps AUC 52.0 is not told apart from chance'],
  });
  await writeCard(run.file('adapter'), card);
  await keepThreshold(run, undefined, reportOf(0.9));
  expect(readCard(run.file('adapter'))?.judge).toEqual({ kind: 'reward_model' });
});

it('says of every judge of a run that its training was stopped', async () => {
  const path = temporaryDirectory();
  const run = { path, file: (name: string) => join(path, name) } as RunDirectory;
  for (const name of ['adapter', 'reward']) mkdirSync(run.file(name));
  for (const name of ['adapter', 'reward'])
    await writeCard(run.file(name), { method: 'stepamc', dtype: 'f32', judge: { kind: 'verdict' } });
  // The time of a run on a slow machine may be up before its first stage.
  await keepStop(run, { step: 0, stage: 0 }, 1);
  expect(readCard(run.file('adapter'))?.judge?.warnings).toEqual(['its training stopped at step 0']);
  writeFileSync(run.file('progress.json'), JSON.stringify({ steps: 10 }));
  await keepStop(run, { step: 2, stage: 0 }, 1);
  for (const name of ['adapter', 'reward'])
    expect(readCard(run.file(name))?.judge?.warnings).toEqual(['its training stopped at step 2 of 10']);
  await keepStop(run, { step: 2, stage: 1 }, 3);
  expect(readCard(run.file('adapter'))?.judge?.warnings).toEqual([
    'its training stopped at step 2, in stage 2 of 3',
  ]);
});
