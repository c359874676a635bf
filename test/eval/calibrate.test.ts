// A judge that TRL trained, calibrated on labelled rows: its card, its probabilities, where it is unsure, and a cascade behind it.
import { cpSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect, it, onTestFinished } from 'vitest';
import { calibrate } from '../../src/eval/calibrate.js';
import { evaluateCascade, formatCascade } from '../../src/eval/cascade.js';
import { sureReport } from '../../src/eval/sure.js';
import type { StepRecord } from '../../src/records/record.js';
import { openDevice } from '../../src/runtime/device.js';
import { calibratedProbability } from '../../src/scoring/calibration/calibration.js';
import { cascade } from '../../src/scoring/cascade.js';
import { judgements } from '../../src/scoring/judge.js';
import { openScorer } from '../../src/scoring/open.js';
import { type Scorer, scorer, verdictsOf, verdictWords } from '../../src/scoring/scorer.js';
import { temporaryDirectory } from '../weights/temporary-directory.js';

const golden = fileURLToPath(new URL('../golden/trl_prm/', import.meta.url));
const card = {
  method: 'trl',
  judge: { kind: 'published', layout: 'trl', step_separator: '\n', max_length: 1024, threshold: 'greedy' },
};

/** Labels that follow what the judge says at half its odds, so that it is too sure by a factor of two. */
async function labelledBy(judge: Scorer): Promise<StepRecord[]> {
  const problems = Array.from({ length: 40 }, (_, i) => `What is ${i} plus ${i % 7}?`);
  const solutions = problems.map((problem, i) => ({
    problem,
    steps: [`${i} + ${i % 7} = ${i + (i % 7)}`, `So it is ${i}`, 'Done.'],
  }));
  const found = (await judge.score(solutions))!;
  const all = found.flatMap(({ scores }) => scores as number[]).sort((a, b) => a - b);
  const middle = all[all.length >> 1]!;
  return solutions.map(({ problem, steps }, i) => ({
    problem,
    steps: steps.map((text, s) => ({
      text,
      label: (found[i]!.scores[s] as number) >= middle !== ((i + s) % 4 === 0) ? 1 : 0,
    })),
  })) as unknown as StepRecord[];
}

it('keeps a calibration in the card, by which the judge is then as sure as held-out steps bear out', async () => {
  const model = temporaryDirectory();
  cpSync(join(golden, 'qwen2-trained'), model, { recursive: true });
  writeFileSync(join(model, 'steptrain.json'), JSON.stringify(card));
  const device = openDevice('cpu');
  onTestFinished(() => device.dispose());
  const raw = await openScorer(device, model);
  onTestFinished(() => raw.dispose());
  const records = await labelledBy(raw);
  const fitted = await calibrate(device, model, records, { unsure: 0.7 });
  expect(fitted).toMatchObject({ steps: 120, unscored: 0, directory: model });
  expect(fitted.chosen).not.toBe('none');
  expect(fitted.quality[fitted.chosen].nll).toBeLessThan(fitted.quality.none.nll);
  const kept = JSON.parse(readFileSync(join(model, 'steptrain.json'), 'utf8')) as {
    readonly judge: Readonly<Record<string, unknown>>;
  };
  expect(kept).toEqual({
    ...card,
    dtype: 'f32',
    judge: { ...card.judge, unsure: 0.7, calibration: fitted.calibration },
  });
  const judge = await openScorer(device, model);
  onTestFinished(() => judge.dispose());
  const solutions = records.map(({ problem, steps }) => ({ problem, steps: steps.map(({ text }) => text) }));
  const [before, after] = [(await raw.score(solutions))!, (await judge.score(solutions))!];
  expect(after.map(({ scores }) => scores)).toEqual(
    before.map(({ scores }) => scores.map((p) => calibratedProbability(fitted.calibration!, p as number))),
  );
  const words = after.map((own) => verdictWords(judge, own));
  const said = (p: number) => (Math.max(p, 1 - p) < 0.7 ? 'unsure' : p >= 0.5 ? 'right' : 'wrong');
  expect(words).toEqual(after.map(({ scores }) => scores.map((p) => said(p as number))));
  expect(new Set(words.flat()).has('unsure')).toBe(true);
  expect((await judgements(judge, solutions)).map((of) => of.map(({ verdict }) => verdict))).toEqual(words);
  // Whatever learns from its verdicts learns nothing where it is unsure.
  expect((await verdictsOf(judge)(solutions)).flat().filter((verdict) => verdict === null)).toHaveLength(
    words.flat().filter((word) => word === 'unsure').length,
  );
  await expect(calibrate(device, model, records.slice(0, 0))).rejects.toThrow(
    'calibration needs right and wrong steps',
  );
  await expect(openScorer(device, model, { unsure: 0.3 })).rejects.toThrow(
    'unsure: expected the least probability of a verdict, a number from 0.5 to 1, found 0.3',
  );
});

it('replaces an earlier calibration, beginning with the threshold that the judge had of its own', async () => {
  const model = temporaryDirectory();
  cpSync(join(golden, 'qwen2-trained'), model, { recursive: true });
  const write = (judge: object) =>
    writeFileSync(join(model, 'steptrain.json'), JSON.stringify({ ...card, judge }));
  const read = () =>
    (JSON.parse(readFileSync(join(model, 'steptrain.json'), 'utf8')) as { judge: Record<string, unknown> })
      .judge;
  write({ ...card.judge, threshold: 0.4 });
  const device = openDevice('cpu');
  onTestFinished(() => device.dispose());
  const raw = await openScorer(device, model);
  onTestFinished(() => raw.dispose());
  const records = await labelledBy(raw);
  const { calibration } = await calibrate(device, model, records);
  const once = read();
  expect(once).toMatchObject({ calibration, threshold: calibratedProbability(calibration!, 0.4) });
  expect((once.calibration as Record<string, unknown>).own_threshold).toBe(0.4);
  await calibrate(device, model, records);
  expect(read()).toEqual(once);
  // One half says which verdict is likelier, of calibrated probabilities too.
  write({ ...card.judge, threshold: 0.5 });
  await calibrate(device, model, records);
  expect(read().threshold).toBe(0.5);
  expect(read().calibration).not.toHaveProperty('own_threshold');
  // A threshold that somebody wrote into the calibrated card is of calibrated probabilities, and stays.
  write({ ...once, threshold: 0.9 });
  await calibrate(device, model, records.slice(0, 20));
  expect(read().threshold).toBe(0.9);
  expect(read().calibration).not.toEqual(once.calibration);
});

const steps = (...labels: readonly (0 | 1)[]) => labels.map((label, i) => ({ text: `s${i}`, label }));
const records = [
  { problem: 'a', steps: steps(1, 1) },
  { problem: 'b', steps: steps(1, 0) },
  { problem: 'c', steps: steps(0, 1) },
] as unknown as StepRecord[];
const saying = (name: string, of: Readonly<Record<string, readonly (number | null)[]>>, tokens: number) =>
  scorer({
    name,
    score: async (solutions) => solutions.map(({ problem }) => ({ scores: of[problem]!, tokens })),
  });
const fast = saying('fast', { a: [0.95, 0.9], b: [0.9, 0.6], c: [0.05, 0.9] }, 10);
const slow = saying('slow', { a: [0.1, 0.1], b: [0.1, 0.2], c: [0.9, 0.9] }, 100);

it('asks the second judge of what the first is unsure of alone', async () => {
  const both = cascade(fast, slow, 0.8);
  const asked = records.map(({ problem, steps: own }) => ({ problem, steps: own.map(({ text }) => text) }));
  expect(await both.score(asked)).toEqual([
    { scores: [0.95, 0.9], verdicts: [1, 1], tokens: 10 },
    { scores: [0.9, 0.2], verdicts: [1, 0], tokens: 110 },
    { scores: [0.05, 0.9], verdicts: [0, 1], tokens: 10 },
  ]);
});

it('says what each level of a cascade is worth and costs', async () => {
  const report = await evaluateCascade(fast, slow, records, { levels: [0.5, 0.8] });
  const row = (at: number) => {
    const { seconds, ...own } = report.rows[at]!;
    expect(seconds).toBeGreaterThanOrEqual(0);
    return own;
  };
  // Right steps 4 of 6; fast says 1 1 1 1 0 1: F1 of right 8/9, of wrong 2/3.
  const first = { f1_macro: (8 / 9 + 2 / 3) / 2, processbench: 2 / 3 };
  expect(row(0)).toEqual({ least: null, asked: 0, tokens: 30, ...first });
  expect(row(1)).toEqual({ least: 0.5, asked: 0, tokens: 30, ...first });
  expect(row(2)).toEqual({ least: 0.8, asked: 1 / 3, tokens: 130, f1_macro: 1, processbench: 1 });
  expect(row(3)).toMatchObject({ least: null, asked: 1, tokens: 300, processbench: 0 });
  expect(report.unjudged).toEqual({ first: 0, second: 0 });
  expect(formatCascade(report)).toContain('unsure below 80.0 %');
  expect(formatCascade(report)).not.toContain('without a verdict');
  const blind = saying('blind', { a: [null, 0.9], b: [0.9, null], c: [0.9, null] }, 1);
  expect(formatCascade(await evaluateCascade(blind, slow, records))).toContain(
    'steps without a verdict, which count as wrong: 3 of the first, 0 of the second',
  );
});

it('measures the verdicts that are sure', () => {
  const verdict = (label: 0 | 1, probability: number) => ({
    ...{ solution: 0, step: 0, label, probability, logPositive: 0, logNegative: 0 },
    verdict: probability >= 0.5 ? (1 as const) : (0 as const),
  });
  const judged = [
    verdict(1, 0.9),
    verdict(0, 0.05),
    verdict(0, 0.6),
    { ...verdict(1, 0.99), verdict: undefined },
  ];
  expect(sureReport(judged, 0.8)).toMatchObject({ least: 0.8, share: 0.5, metrics: { n: 2, accuracy: 1 } });
  expect(sureReport([], 0.8)).toBeUndefined();
});
