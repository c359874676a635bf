import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { compareVerdicts, formatComparison } from '../../src/eval/comparison.js';
import type { VerdictRow } from '../../src/eval/reports/dump.js';

const golden = JSON.parse(readFileSync(new URL('../golden/evaluation.json', import.meta.url), 'utf8'));

const rows = (judge: 'a' | 'b'): VerdictRow[] =>
  golden.steps.map((step: { problem: string; label: 0 | 1; a: number; b: number }, i: number) => ({
    problem: step.problem,
    solution: 0,
    step: i,
    text: `step ${i}`,
    label: step.label,
    probability: step[judge],
    verdict: step[judge] >= 0.5 ? 1 : 0,
  }));

const a = rows('a');
const b = rows('b');

it('gives no number of a class that no step has', () => {
  const right = (rows: readonly VerdictRow[]) => rows.filter(({ label }) => label === 1);
  const compared = compareVerdicts(right(a), right(b), { resamples: 50 });
  const lines = formatComparison(compared, { boxed: false }).split('\n');
  const cells = (title: string) => lines.find((line) => line.startsWith(title))?.slice(title.length);
  for (const title of ['F1 macro', 'balanced accuracy', 'Acc_neg'])
    expect(cells(title)).toMatch(/^ +– +– +–\s*$/);
  expect(cells('Acc_pos')).toMatch(/\d/);
});

describe('a comparison of two judges', () => {
  const compared = compareVerdicts(a, b, { resamples: 8000 });

  it('gives the McNemar test of statsmodels', () => {
    const { exact_p, mid_p, ...counts } = golden.mcnemar[0];
    expect(compared.mcnemar).toMatchObject(counts);
    expect(compared.mcnemar.exact_p).toBeCloseTo(exact_p, 12);
    expect(compared.mcnemar.mid_p).toBeCloseTo(mid_p, 12);
  });

  it('gives the interval of a paired numpy bootstrap for the difference in macro F1', () => {
    const { difference, interval, p } = compared.differences.f1_macro;
    expect(difference).toBeCloseTo(compared.b.f1_macro - compared.a.f1_macro, 12);
    interval.forEach((end, i) => {
      expect(Math.abs(end - golden.bootstrap.difference.f1_macro[i])).toBeLessThan(0.006);
    });
    expect(golden.bootstrap.difference.share_not_above).toBe(0);
    expect(p).toBeLessThan(0.001);
  });

  it('changes its sign with the order, and is 0 between equal judges', () => {
    const turned = compareVerdicts(b, a, { resamples: 8000 });
    expect(turned.differences.f1_macro.difference).toBe(-compared.differences.f1_macro.difference);
    expect(turned.differences.f1_macro.p).toBe(compared.differences.f1_macro.p);
    expect(turned.mcnemar.only_a).toBe(compared.mcnemar.only_b);
    const same = compareVerdicts(a, a, { resamples: 50 });
    // 0 of n problems show a difference, so Wilson's interval lets as many as z² / (n + z²) show one.
    const open = 1.96 ** 2 / (same.problems + 1.96 ** 2);
    expect(same.differences.f1_macro).toEqual({
      difference: 0,
      interval: [expect.closeTo(-open, 4), expect.closeTo(open, 4)],
      p: 1,
    });
    expect(same.mcnemar).toEqual({ only_a: 0, only_b: 0, exact_p: 1, mid_p: 1 });
  });

  it('rarely finds a difference between equally good judges', () => {
    // Both judges toss the same coin; every problem has four steps.
    let state = 7;
    const coin = () => {
      state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
      return state / 2 ** 32 < 0.7;
    };
    let found = 0;
    for (let trial = 0; trial < 100; trial++) {
      const judge = (): VerdictRow[] =>
        Array.from({ length: 160 }, (_, i) => {
          const label = i % 3 === 0 ? 0 : 1;
          const verdict = coin() ? label : ((1 - label) as 0 | 1);
          return {
            problem: `p${i >> 2}`,
            solution: 0,
            step: i,
            text: '',
            label,
            probability: verdict,
            verdict,
          };
        });
      if (compareVerdicts(judge(), judge(), { resamples: 199 }).differences.f1_macro.p < 0.05) found++;
    }
    expect(found).toBeLessThan(15);
  });

  it('counts an unreadable verdict as wrong', () => {
    const unreadable = a.map((row) => ({ ...row, verdict: null }));
    const { a: metrics, mcnemar } = compareVerdicts(unreadable, a, { resamples: 20 });
    expect(metrics).toMatchObject({ accuracy: 0, invalid: a.length });
    expect(mcnemar.only_a).toBe(0);
  });

  it('fits a terminal', () => {
    for (const boxed of [true, false]) {
      const lines = formatComparison(compared, { boxed }).split('\n');
      for (const line of lines) expect(line.length).toBeLessThanOrEqual(80);
    }
    const text = formatComparison(compared, { boxed: false });
    expect(text).toMatch(/^223 steps, % +A +B +B − A +95 % CI +p$/m);
    expect(text).toMatch(/^F1 macro +69\.4 +86\.\d +\+1[67]\.\d +\+\d+\.\d to \+\d+\.\d +0\.000$/m);
    const certain = { ...compared, mcnemar: { only_a: 0, only_b: 9999, exact_p: 0, mid_p: 0 } };
    expect(formatComparison(certain, { boxed: false })).toContain('mid-p below 1e-300');
    expect(text).toContain('17 right only in A, 54 only in B, exact p 1.3e-5');
  });
});

describe('judgements of different steps', () => {
  const changed = (i: number, change: Partial<VerdictRow>) =>
    b.map((row, j) => (j === i ? { ...row, ...change } : row));

  it.each([
    [b.slice(1), 'the first judged 223 steps and the second 222; '],
    [changed(3, { text: 'x' }), 'line 4 has text "step 3" in the first and "x" in the second; '],
    [changed(0, { label: 1 }), 'line 1 has label 0 in the first and 1 in the second; '],
    [
      changed(5, { problem: 'y'.repeat(90) }),
      `line 6 has problem "p1" in the first and "${'y'.repeat(56)}…" in the second; `,
    ],
  ])('are refused in one sentence', (other, sentence) => {
    expect(() => compareVerdicts(a, other)).toThrow(
      `${sentence}only verdicts on the same steps can be compared: judge the same data with the same limits`,
    );
  });
});
