import { describe, expect, it } from 'vitest';
import {
  parseRewardQuality,
  qualityRows,
  qualitySentences,
  rewardQuality,
  type ScoredSolution,
  spearman,
  standingOf,
} from '../../src/eval/reward-quality.js';
import { PhiloxStream } from '../../src/random/philox.js';

const options = { scorer: 'reward', data: ['a.jsonl'], unit: 'steps', seconds: 2, tokens: 80 } as const;
const solution = (
  problem: string,
  labels: readonly (0 | 1 | null)[],
  scores: readonly (number | null)[],
): ScoredSolution => ({
  record: { problem, steps: labels.map((label, i) => ({ text: 'x'.repeat(5 + i), label, kind: 'normal' })) },
  scores,
});

describe('the quality of a reward model', () => {
  it('counts pairs within a problem only, ties half', () => {
    const of = rewardQuality(
      [
        solution('a', [1, 1, 0], [0.9, 0.5, 0.5]),
        // White space makes no other problem.
        solution(' a\n', [0, null], [0.95, 0.1]),
        solution('b', [1], [0]),
      ],
      options,
    );
    // Of problem a: 0.9 and 0.5 against 0.5 and 0.95: 1 + 0 + ½ + 0 of 4.
    expect(of.within_problem).toEqual({ pairs: 4, auc: 1.5 / 4 });
    expect(of.ties).toBe(1 / 4);
    expect(of).toMatchObject({ problems: 2, scored: 5, wrong: 2, unscored: 0 });
    expect(of.overall.pairs).toBe(6);
    expect(of.cost).toEqual({ seconds: 2, tokens: 80, ms_per_solution: 2000 / 3, ms_per_step: 2000 / 6 });
    expect(parseRewardQuality(JSON.parse(JSON.stringify(of)))).toEqual(of);
  });

  it('compares wrong steps with those of right solutions apart', () => {
    const of = rewardQuality(
      [
        solution('a', [1, 1, 0], [0.9, 0.8, 0.3]),
        solution('a', [1, 1], [0.2, 0.4]),
        solution('b', [1, 0], [0.9, 0.1]),
      ],
      options,
    );
    // 0.2 and 0.4 against 0.3; what stands before an error is easy, and no solution of b is right.
    expect(of.against_right_solutions).toEqual({ pairs: 2, auc: 1 / 2 });
    expect(of.within_problem.pairs).toBe(5);
    expect(qualityRows(of)[3]?.[0]).toBe('against right solutions');
    expect(rewardQuality([], { ...options, unit: 'solutions' }).against_right_solutions).toBeUndefined();
  });

  it('finds the first error where it has the lowest score', () => {
    const { first_error } = rewardQuality(
      [
        solution('a', [1, 1, 0, null], [0.9, 0.8, 0.2, 0.1]),
        solution('b', [1, 0], [0.3, 0.4]),
        solution('c', [1, 0], [0.5, 0.5]),
        solution('d', [1, 1], [0.1, 0.2]),
        solution('e', [0], [0.1]),
      ],
      options,
    );
    expect(first_error).toEqual({ n: 3, found: 1.5 / 3, chance: (1 / 3 + 1 / 2 + 1 / 2) / 3 });
  });

  it('sees a score that is nothing but the place', () => {
    const late = Array.from({ length: 30 }, (_, i) => solution(`p${i}`, [1, 1, 0], [0.9, 0.6, 0.3]));
    const of = rewardQuality(late, options);
    expect([of.within_problem.auc, of.place_alone.auc]).toEqual([1, 1]);
    expect(of.correlation.place).toBeCloseTo(-1, 12);
    expect(qualitySentences(of).join()).toContain('how early a step stands, which alone has an AUC of 100');
    const apart = Array.from({ length: 30 }, (_, i) => solution(`p${i}`, [0, 1], [0.1, 0.9]));
    expect(qualitySentences(rewardQuality(apart, options)).join()).not.toContain('how early');
  });

  it('is strong only with its interval above 0.55, and unknown without pairs', () => {
    const drawn = (n: number, lead: number) =>
      rewardQuality(
        Array.from({ length: n }, (_, i) => {
          const draw = new PhiloxStream(1, 7, i);
          return solution(`p${i}`, [1, 0], [draw.uniform() + lead, draw.uniform()]);
        }),
        options,
      );
    expect(standingOf(drawn(300, 0.5))).toBe('strong');
    expect(standingOf(drawn(300, 0))).toBe('weak');
    expect(standingOf(drawn(6, 0.2))).toBe('weak');
    expect(standingOf(rewardQuality([solution('a', [1, 1], [1, 0])], options))).toBe('unknown');
  });

  it('has intervals as wide as those of a share of problems', () => {
    // One pair in a problem: the AUC is a share of problems, whose error is known.
    const n = 400;
    const of = rewardQuality(
      Array.from({ length: n }, (_, i) => {
        const draw = new PhiloxStream(3, 5, i);
        const isWon = draw.uniform() < 0.62;
        const steps = isWon ? [0.9, 0.1] : [0.1, 0.9];
        return draw.uniform() < 0.5
          ? solution(`p${i}`, [1, 0], steps)
          : solution(`p${i}`, [0, 1], [...steps].reverse());
      }),
      options,
    );
    for (const ranking of [of.within_problem, of.place_alone, of.shuffled]) {
      const { auc = 0, interval = [0, 0] } = ranking ?? {};
      const error = 1.96 * Math.sqrt((auc * (1 - auc)) / n);
      expect(Math.abs(interval[0] - (auc - error))).toBeLessThan(0.015);
      expect(Math.abs(interval[1] - (auc + error))).toBeLessThan(0.015);
    }
  });

  it('ranks whole solutions by the score of their last step', () => {
    const of = (outcome: 0 | 1, score: number) => {
      const made = solution('a', [null, null], [null, score]);
      return { ...made, record: { ...made.record, outcome } };
    };
    const found = rewardQuality([of(1, 0.9), of(0, 0.2), of(0, 0.95)], { ...options, unit: 'solutions' });
    expect(found.within_problem).toMatchObject({ pairs: 2, auc: 0.5 });
    expect(found.first_error).toBeUndefined();
  });

  it('is a table and sentences', () => {
    const of = rewardQuality(
      [solution('a', [1, 0], [0.9, 0.1]), solution('b', [1, 0, 1], [0.9, 0.1, null])],
      options,
    );
    expect(qualityRows(of)[1]).toEqual(['within a problem', '100.0', expect.stringMatching(/-100\.0$/), '2']);
    expect(qualitySentences(of).join('\n')).toContain('1 without a score');
  });
});

it('Spearman is that of ranks, ties in the middle', () => {
  expect(spearman([1, 2, 3, 10], [2, 4, 9, 100])).toBeCloseTo(1, 12);
  expect(spearman([1, 2, 2, 3], [3, 2, 2, 1])).toBeCloseTo(-1, 12);
  expect(spearman([1, 1, 1], [1, 2, 3])).toBeUndefined();
  // scipy.stats.spearmanr([1, 2, 3, 4, 5], [5, 6, 7, 8, 7]).statistic
  expect(spearman([1, 2, 3, 4, 5], [5, 6, 7, 8, 7])).toBeCloseTo(0.8207826816681233, 12);
});
