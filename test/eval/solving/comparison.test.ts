// Two evaluations of the same problems.
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { compareSolving, formatSolvingComparison } from '../../../src/eval/solving/comparison.js';
import type { SolvedProblem } from '../../../src/eval/solving/dump.js';
import { gradingOf, sharedGrading } from '../../../src/eval/solving/report-file.js';
import { temporaryDirectory } from '../../weights/temporary-directory.js';

/** A problem for each row, with a sample for each of its characters: 1 is right. */
function solved(...rows: readonly string[]): SolvedProblem[] {
  return rows.map((row, i) => ({
    problem: `p${i}`,
    answer: '7',
    samples: [...row].map((mark, sample) => ({
      problem: i,
      sample,
      text: '',
      tokens: 4,
      finish_reason: 'stop',
      prompt: '',
      answer: mark === '1' ? '7' : mark,
      right: mark === '1',
    })),
  }));
}

describe('comparison', () => {
  it('counts problems that only one solved, and resamples problems for both together', () => {
    const a = solved(...Array.from({ length: 40 }, (_, i) => (i < 10 ? '1' : '8')));
    const b = solved(...Array.from({ length: 40 }, (_, i) => (i < 25 && i !== 3 ? '1' : '8')));
    const comparison = compareSolving(a, b);
    expect(comparison.mcnemar).toMatchObject({ only_a: 1, only_b: 15 });
    // Twice the probability of at most 1 head in 16 tosses.
    expect(comparison.mcnemar.exact_p).toBeCloseTo((2 * 17) / 2 ** 16, 12);
    const { 'pass@1': pass } = comparison.metrics;
    expect(pass).toMatchObject({ a: 0.25, b: 0.6, p: expect.closeTo(2 / 1001, 6) });
    expect(pass?.difference).toBeCloseTo(0.35, 12);
    const table = formatSolvingComparison(comparison, { boxed: false });
    expect(table).toMatch(/^40 problems, % +A +B +B − A +95 % CI +p\npass@1 +25\.0 +60\.0 +\+35\.0 /);
    expect(table).toMatch(/tokens a sample +4\.0 +4\.0 +0\.0 +– +1\.000/);
    expect(table).toContain('1 solved only in A, 15 only in B');
  });

  it('of equal problems leaves open what so few of them cannot show', () => {
    const [right, wrong] = ['1', '8'].map((mark) => solved(...Array.from({ length: 8 }, () => mark)));
    // 1.96² / (8 + 1.96²), Wilson's upper end for 0 of 8.
    const open = expect.closeTo(0.3244, 4);
    expect(compareSolving(right!, right!).metrics['pass@1']).toEqual(
      expect.objectContaining({ difference: 0, interval: [expect.closeTo(-0.3244, 4), open], p: 1 }),
    );
    // So many problems may differ the other way; p is that of a test of signs, 2 / 2⁸.
    expect(compareSolving(wrong!, right!).metrics['pass@1']).toEqual(
      expect.objectContaining({
        difference: 1,
        interval: [expect.closeTo(1 - 2 * 0.3244, 4), 1],
        p: 2 / 2 ** 8,
      }),
    );
    expect(formatSolvingComparison(compareSolving(right!, right!), { boxed: false })).toMatch(
      /pass@1 +100\.0 +100\.0 +0\.0 +−32\.4 to \+32\.4 +1\.000/,
    );
  });

  it('of different numbers of samples compares what both have, and goes by the most frequent answers', () => {
    const comparison = compareSolving(
      solved('118', '818', '88'.padEnd(3, '9')),
      solved('11181', '18989', '11188'),
    );
    expect(Object.keys(comparison.metrics).slice(0, 4)).toEqual(['pass@1', 'pass@2', 'pass@3', 'maj@3']);
    expect(comparison).toMatchObject({ n: { a: 3, b: 5 }, mcnemar: { only_a: 0, only_b: 1 } });
  });

  it('of samples of other lengths compares votes for as many tokens', () => {
    const long = (problems: SolvedProblem[]) =>
      problems.map((problem) => ({
        ...problem,
        samples: problem.samples.map((sample) => ({ ...sample, tokens: 5 })),
      }));
    const a = solved('1189', '1111');
    const b = long(solved('11189', '88881'));
    const comparison = compareSolving(a, b);
    // 4 votes of 4 tokens pay for 3.2 votes of 5.
    expect(comparison.equal_tokens).toEqual({ 'maj_equal@4': { a: 4, b: expect.closeTo(3.2, 12) } });
    // Of 11189 seven triples elect 1 for certain and three, which are 189, by a third; all quadruples do. Of 88881 none does.
    const expected = (0.8 * 0.8 + 0.2 * 1 + 0) / 2;
    expect(comparison.metrics['maj_equal@4']).toMatchObject({ a: 1, b: expect.closeTo(expected, 12) });
    expect(formatSolvingComparison(comparison, { boxed: false })).toContain(
      'votes of as many tokens on average, 4 of A and 3.2 of B',
    );
    // The other way about, five votes of five tokens would need more samples than the other has.
    expect(Object.keys(compareSolving(b, a).equal_tokens)).toEqual([]);
  });

  it('takes for one answer what the evaluations took for one', async () => {
    // 1/3 and 0.333 are one answer where three digits are enough, and two by default.
    const [problem] = solved('1234');
    const answers = ['1/3', '0.333', '5', '5'];
    const voted = [
      {
        ...problem!,
        answer: '1/3',
        samples: problem!.samples.map((own, i) => ({ ...own, answer: answers[i]!, right: i < 2 })),
      },
    ];
    expect(compareSolving(voted, voted, { digits: 3 }).metrics['maj@4']).toMatchObject({ a: 0.5, b: 0.5 });
    expect(compareSolving(voted, voted).metrics['maj@4']).toMatchObject({ a: 0, b: 0 });
    const folder = temporaryDirectory();
    const graded = (name: string, digits: number | undefined) => {
      mkdirSync(join(folder, name));
      writeFileSync(
        join(folder, name, 'solve.json'),
        JSON.stringify({
          ...{ problems: 1, n: 4, metrics: {}, bootstrap: { seed: 1, resamples: 1, confidence: 0.95 } },
          grading: gradingOf({ digits }),
        }),
      );
      return join(folder, name);
    };
    const [three, never, usual] = [graded('a', 3), graded('b', Infinity), graded('c', undefined)];
    expect(await sharedGrading([three, join(three, 'problems.jsonl')])).toMatchObject({ digits: 3 });
    expect(await sharedGrading([never, never])).toMatchObject({ digits: Infinity });
    // A run keeps problems.jsonl alone.
    expect(await sharedGrading([usual, folder])).toMatchObject({ digits: 6, units: 'optional' });
    await expect(sharedGrading([three, never])).rejects.toThrow(
      /a were compared with --digits 3, those of .*b with --digits Infinity; compare both alike/,
    );
  });

  it('says nothing of a share of nothing, and leaves out the resamples that are one', () => {
    const judged = (problems: readonly SolvedProblem[], steps: readonly (0 | 1)[]) =>
      problems.map(({ samples, ...problem }) => ({
        ...problem,
        samples: samples.map((sample) => ({ ...sample, steps })),
      }));
    const wrong = solved(...Array.from({ length: 40 }, () => '8'));
    const few = solved(...Array.from({ length: 40 }, (_, i) => (i < 2 ? '1' : '8')));
    const none = compareSolving(judged(wrong, [0]), judged(few, [0])).metrics;
    expect(Object.keys(none)).not.toContain('step_errors');
    const { step_errors: errors } = compareSolving(judged(few, [0]), judged(few, [1])).metrics;
    // Two problems tell: no resample has another difference than −1, and 2 / (2 + 1.96²) of the range stay open.
    expect(errors).toMatchObject({ a: 1, b: 0, difference: -1, p: 2 ** -1 });
    expect(errors?.interval).toEqual([-1, expect.closeTo(-1 + 2 * 0.6576, 4)]);
  });

  it('refuses other problems', () => {
    expect(() => compareSolving(solved('1'), solved('1', '1'))).toThrow(
      'the first has 1 problem and the second 2; only evaluations of the same problems can be compared',
    );
    const other = solved('1', '1').map((problem, i) => (i === 1 ? { ...problem, answer: '8' } : problem));
    expect(() => compareSolving(solved('1', '1'), other)).toThrow(
      'problem 2 has the answer "7" in the first and "8" in the second',
    );
  });
});
