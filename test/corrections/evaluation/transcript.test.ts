// Texts with corrections, judged: what was corrected is no error, and what a correction does is seen.
import { describe, expect, it } from 'vitest';
import { outputMetrics } from '../../../src/corrections/evaluation/outputs.js';
import { heldOutStep, prefixMetrics } from '../../../src/corrections/evaluation/prefixes.js';
import { transcriptOf } from '../../../src/corrections/evaluation/transcript.js';
import { correctionWriter } from '../../../src/data/corrections/layout.js';
import type { WordProblem } from '../../../src/data/problems/problem.js';
import { correctionTables, formatCorrectionReport } from '../../../src/eval/solving/corrections.js';
import { oracleScorer } from '../../../src/scoring/oracle.js';
import { tools } from '../fake-source.js';

const format = { reflection: 'Wait: {text}', improvement: 'Now: {text}' };
const writer = correctionWriter(format);
const text = (...lines: string[]) => `${lines.join('\n')}\n`;

/** Tom: 2 + 3 = 5, then 5 - 1 = 4. */
const PROBLEM: WordProblem = {
  problem: 'Tom has 2 pens, gets 3 and loses 1. How many?',
  answer: '4',
  level: 1,
  template: 't',
  wording: 0,
  part: 'test',
  plan: [
    { about: 'Tom', left: { value: 2 }, op: '+', right: { value: 3 }, result: 5 },
    { about: 'Tom', left: { value: 5, step: 0 }, op: '-', right: { value: 1 }, result: 4 },
  ],
  ending: { kind: 'number', step: 1 },
};
const CORRECTED = text('Tom: 2 + 3 = 6', 'Wait: no', 'Now: Tom: 2 + 3 = 5', 'Tom: 5 - 1 = 4', 'Answer: 4');
const HARMED = text('Tom: 2 + 3 = 5', 'Wait: no', 'Now: Tom: 2 + 3 = 6', 'Tom: 6 - 1 = 5', 'Answer: 5');
const CLEAN = text('Tom: 2 + 3 = 5', 'Tom: 5 - 1 = 4', 'Answer: 4');
const WRONG = text('Tom: 2 + 3 = 6', 'Tom: 6 - 1 = 5', 'Answer: 5');

describe('a transcript', () => {
  it('keeps what stands, and what was corrected after which steps', () => {
    expect(transcriptOf(CORRECTED, writer)).toEqual({
      kept: ['Tom: 2 + 3 = 5', 'Tom: 5 - 1 = 4', 'Answer: 4'],
      corrections: [{ before: [], abandoned: 'Tom: 2 + 3 = 6', improvement: 'Tom: 2 + 3 = 5' }],
    });
  });

  it('takes back the whole solution where corrections mean that', () => {
    const whole = text('Tom: 2 + 3 = 6', 'Answer: 6', 'Wait: no', 'Now: Tom: 2 + 3 = 5', 'Answer: 5');
    expect(transcriptOf(whole, writer, 'solution').kept).toEqual(['Tom: 2 + 3 = 5', 'Answer: 5']);
    expect(transcriptOf(whole, writer).kept).toEqual(['Tom: 2 + 3 = 6', 'Tom: 2 + 3 = 5', 'Answer: 5']);
  });

  it('has no improvement where the text ends with a reflection', () => {
    expect(transcriptOf(text('a', 'Wait: no'), writer)).toEqual({
      kept: [],
      corrections: [{ before: [], abandoned: 'a' }],
    });
  });
});

const solved = (...texts: string[]) => {
  const samples = texts.map((each, sample) => ({
    problem: 0,
    sample,
    text: each,
    tokens: 1,
    finish_reason: 'stop' as const,
    prompt: '',
    answer: null,
    right: false,
  }));
  return [{ problem: PROBLEM.problem, answer: '4', generated: PROBLEM, samples }];
};

describe('corrections of outputs', () => {
  it('are judged: of wrong steps, into right ones, of right steps into wrong ones, and what stands', async () => {
    const metrics = await outputMetrics(solved(CORRECTED, HARMED, CLEAN, WRONG), writer, {
      judge: oracleScorer,
    });
    expect(metrics).toEqual({
      samples: 4,
      corrections: 2,
      correction_rate: 0.5,
      correction_precision: 0.5,
      repair_rate: 1,
      harm_rate: 1,
      // Of 12 steps that stand, all of the harmed and of the wrong solution.
      wrong_steps: 0.5,
      samples_with_wrong_step: 0.5,
      errors: { slip: 2, carried: 4 },
      abandoned_errors: { slip: 1 },
    });
  });

  it('are counted alone without a judge; shares of nothing are absent', async () => {
    const metrics = await outputMetrics(solved(CLEAN), writer);
    expect(metrics).toMatchObject({ corrections: 0, correction_rate: 0, errors: {} });
    const judged = await outputMetrics(solved(CLEAN), writer, { judge: oracleScorer });
    expect(judged.correction_precision).toBeUndefined();
    expect(judged).toMatchObject({ wrong_steps: 0, samples_with_wrong_step: 0 });
  });
});

describe('after held-out steps', () => {
  const step = (kind: 'normal' | 'wrong' | 'reflection' | 'improvement', of: string) => ({
    text: of,
    kind,
    label: null,
  });
  const record = {
    problem: 'p',
    gold_answer: '4',
    steps: [
      step('normal', 'a=1'),
      step('wrong', 'b=3'),
      step('reflection', 'no'),
      step('improvement', 'b=2'),
      step('normal', 'The answer is: 4'),
    ],
  };
  const held = heldOutStep(record)!;

  it('are those of a sample with one wrong step', () => {
    expect(held).toEqual({ problem: 'p', answer: '4', before: ['a=1'], wrong: 'b=3', right: 'b=2' });
    expect(heldOutStep({ ...record, steps: record.steps.slice(3) })).toBeUndefined();
    expect(heldOutStep({ ...record, steps: [step('wrong', 'x'), ...record.steps] })).toBeUndefined();
  });

  it.each([
    [
      'corrects errors alone',
      (prompt: string) =>
        prompt.endsWith('b=3\n') ? 'Wait: no\nNow: b=2\nThe answer is: 4' : 'The answer is: 4',
      [1, 1, 1, 0, 1, 0, 1, 0],
    ],
    [
      'never corrects',
      (prompt: string) => (prompt.endsWith('b=3\n') ? 'The answer is: 5' : 'The answer is: 4'),
      [0, 0, 0, 0, 1, 0, 0, 0],
    ],
    ['corrects everything, badly', () => 'Wait: no\nNow: b=9\nThe answer is: 9', [1, 0, 0, 1, 0, 1, 0, 1]],
  ] as const)('a model %s', async (_, next, rates) => {
    const [trigger, fix, both, falsely, right, harm, repair, spoil] = rates;
    const { sampler } = tools(next);
    expect(await prefixMetrics([held], sampler, writer, { max_new_tokens: 50 })).toEqual({
      prefixes: 1,
      trigger_rate: trigger,
      fix_rate: fix,
      triggered_fix_rate: both,
      repair_rate: repair,
      false_trigger_rate: falsely,
      right_rate: right,
      spoil_rate: spoil,
      harm_rate: harm,
      trigger_difference: { value: trigger - falsely },
    });
  });

  it('tell with an interval over problems how much more often a model reflects on wrong steps', async () => {
    // Seen in three of four problems; in the fourth it reflects on the right step instead. Two steps of a problem count together.
    const places = ['a', 'a', 'b', 'c', 'd'].map((problem) => ({ ...held, problem, answer: '4' }));
    const { sampler } = tools((prompt) =>
      prompt.startsWith('d') === prompt.endsWith('b=2\n') ? 'Wait: no\nNow: b=2' : 'The answer is: 4',
    );
    const metrics = await prefixMetrics(places, sampler, writer, { max_new_tokens: 50 });
    expect(metrics).toMatchObject({ trigger_rate: 0.8, false_trigger_rate: 0.2 });
    const { value, interval } = metrics!.trigger_difference;
    expect(value).toBeCloseTo(0.6);
    // Four draws of d alone, of 256, are rarer than 2.5 in a hundred; two and three of them are not.
    expect(interval![0]).toBeLessThan(0);
    expect(interval![1]).toBe(1);
  });
});

it('a table shows rates with their intervals in percent', () => {
  const corrections = { samples: 4, corrections: 0, correction_rate: 0, errors: {}, abandoned_errors: {} };
  const greedy = {
    problems: 4,
    n: 1,
    metrics: { 'pass@1': { value: 0.5, interval: [0.25, 0.755] } },
    bootstrap: { seed: 42, resamples: 1000, confidence: 0.95 },
    settings: {},
    grading: { expect: 'any', units: 'optional', digits: 6 },
  } as const;
  const prefixes = {
    ...{ prefixes: 8, trigger_rate: 0.5, fix_rate: 0, triggered_fix_rate: 0, repair_rate: 0.25 },
    ...{ false_trigger_rate: 0.125, right_rate: 1, spoil_rate: 0.125, harm_rate: 0 },
    trigger_difference: { value: 0.375, interval: [0.125, 0.625] },
  } as const;
  const report = { greedy, greedy_corrections: corrections, prefixes };
  const table = formatCorrectionReport(report);
  expect(table).toMatch(/pass@1 +50\.0 \(25\.0 to 75\.5\)/);
  expect(table).toMatch(/more often than after right ones by 37\.5 \(12\.5 to 62\.5\)/);
  expect(table).toMatch(/reflects, not the right step then +25\.0 +12\.5/);
  expect(table).toMatch(/reflects, wrong final answer +50\.0 +0\.0/);
  const sampled = { ...greedy, n: 4, metrics: { 'pass@1': { value: 0.5 }, 'maj@4': { value: 0.75 } } };
  for (const found of [report, { ...report, sampled, sampled_corrections: corrections }])
    for (const rows of correctionTables(found))
      for (const cells of rows) {
        expect(cells).toHaveLength(rows[0]!.length);
        expect(cells, cells.join('|')).not.toContain('');
      }
});
