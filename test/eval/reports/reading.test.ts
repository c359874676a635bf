import { describe, expect, it } from 'vitest';
import { evaluateVerdicts } from '../../../src/eval/evaluate-verdicts.js';
import type { EvalReport } from '../../../src/eval/reports/eval-report.js';
import { readingOf } from '../../../src/eval/reports/reading.js';
import type { StepRecord } from '../../../src/records/record.js';
import type { JudgedVerdict } from '../../../src/scoring/verdict/judged.js';

/** The report on problems of a right and a wrong step each: `told` are told apart, of the others both called right. */
function report(problems: number, told: number): EvalReport {
  const records = Array.from(
    { length: problems },
    (_, i): StepRecord => ({
      problem: `problem ${i}`,
      steps: ([1, 0] as const).map((label, j) => ({ text: `step ${j}`, label, kind: 'normal' })),
    }),
  );
  const judged = (probability: (label: 0 | 1, i: number) => number) =>
    records.flatMap(({ steps }, solution) =>
      steps.map(({ label }, step): JudgedVerdict => {
        const p = probability(label as 0 | 1, solution);
        return {
          ...{ solution, step, label: label as 0 | 1, probability: p, verdict: p >= 0.5 ? 1 : 0 },
          ...{ logPositive: Math.log(p), logNegative: Math.log(1 - p) },
        };
      }),
    );
  const own = judged((label, i) => (i < told ? (label === 1 ? 0.9 : 0.1) : 0.9));
  const others = { sft: judged(() => 0.9) };
  return evaluateVerdicts(own, {
    ...{ method: 'stepamc', data: {}, records, invalidAsWrong: false, positivePrior: 0.5, others },
  });
}

const said = (problems: number, told: number) => readingOf('stepamc', report(problems, told)) as string;

describe('the reading of a judge', () => {
  it('says one thing of chance, whatever the number of steps', () => {
    const all = [2, 3, 5, 6, 10, 40].flatMap((problems) =>
      [0, 0.2, 0.4, 0.6, 1].map((share) => said(problems, Math.round(share * problems))),
    );
    for (const sentence of all) {
      const isCompared = /\bchance \([+−]/.test(sentence);
      const isDoubted = /chance: these are too few|is not told apart from chance|hardly above chance/.test(
        sentence,
      );
      expect(isCompared, sentence).toBe(!isDoubted);
    }
    expect(all.some((sentence) => sentence.includes('may be chance: these are too few to tell'))).toBe(true);
    expect(all.some((sentence) => /better than .*chance \(\+/.test(sentence))).toBe(true);
  });

  it('leaves out a model of which no verdict can be read, unless there is no other', () => {
    const { baselines, differences, ...rest } = report(20, 20);
    const { n } = rest.metrics;
    const base = { n, f1_macro: 0, invalid: n };
    const far = { difference: 1, interval: [0.9, 1] as const };
    const said = (to: object) =>
      readingOf('stepamc', {
        ...rest,
        baselines: { ...baselines, base },
        differences: { ...differences!, to },
      } as never);
    expect(said({ base: far, ...differences!.to })).toMatch(
      /F1 macro 100\.0: better than its warm-up \(\+66\.7, /,
    );
    expect(said({ base: far })).toMatch(/better than the base \(which writes no verdict\)/);
  });

  it('has no F1 of steps that are all of one class', () => {
    const { baselines, ...rest } = report(20, 20);
    const { n } = rest.metrics;
    const said = (accuracy: number) =>
      readingOf('stepamc', {
        ...rest,
        baselines: { ...baselines, always_positive: { ...baselines.always_positive, n, accuracy } },
      });
    expect([said(1), said(0)]).toEqual(
      ['right', 'wrong'].map(
        (label) =>
          `Reading: all of the ${n} steps are ${label}, so that they cannot tell whether stepamc is better than others or chance.`,
      ),
    );
  });

  it('tells nothing apart by fewer than six problems, and says so', () => {
    expect(said(5, 5)).toMatch(
      /F1 macro 100\.0: 5 problems are too few to tell it from its warm-up \(\+66\.7, .*\) and chance \(/,
    );
    expect(said(6, 6)).toMatch(/F1 macro 100\.0: better than its warm-up \(\+66\.7, .*\) and chance \(\+50/);
  });
});
