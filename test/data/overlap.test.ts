import { readFileSync } from 'node:fs';
import { gunzipSync } from 'node:zlib';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { likenessTo, problemKey, problemOverlap } from '../../src/data/overlap.js';
import { normalizeProblem } from '../../src/records/record.js';
import { sharedPath } from '../shared.js';

const overlap = (train: readonly string[], test: readonly string[]) =>
  problemOverlap(train.map(problemKey), test.map(problemKey));

describe('problemOverlap', () => {
  it('counts the distinct test problems that are in the training data', () => {
    const train = ['What is $1+1$?', 'Other'];
    const test = ['New', 'what is  $1+1$? ', 'What is $1+1$?'];
    expect(overlap(train, test)).toEqual({ same: 1, near: 0, examples: [1] });
    expect(overlap(train, [])).toEqual({ same: 0, near: 0, examples: [] });
    expect(overlap([], test)).toEqual({ same: 0, near: 0, examples: [] });
  });

  it.each([
    '小明的妈妈在水果店买了12个苹果和8个橘子，苹果每个3元，橘子每个2元。请问妈妈一共花了多少元？',
    '太郎くんはりんごを12個買いました。りんごは一つ150円です。払った金額を求めなさい。',
    'สมชายมีแอปเปิล 12 ผล เขาซื้อเพิ่มอีก 8 ผล แล้วขายแอปเปิลทั้งหมดผลละ 3 บาท ได้เงินกี่บาท',
  ])('finds problems with nearly the same wording where no spaces are between words: %s', (text) => {
    expect(overlap([text.replace('12', '15')], [text]).near).toBe(1);
    expect(overlap([[...text].reverse().join('')], [text]).near).toBe(0);
  });

  it('finds problems with nearly the same wording', () => {
    const base =
      'What is the smallest positive integer n such that all the roots of z are nth roots of unity?';
    const test = [
      base.replace('smallest', 'largest'),
      'How many positive integers less than one hundred are divisible by three but not by five, and why?',
      base.split(' ').reverse().join(' '),
      'What is n?',
    ];
    expect(overlap([base, 'What is m?'], test)).toEqual({ same: 0, near: 1, examples: [0] });
    expect(overlap(['0;+2;-1;+1;-2;+3;-4;+5'], ['0;+2;-1;+1;-2;+3;-4;+6'])).toMatchObject({
      same: 0,
      near: 0,
    });
  });

  it('finds what a comparison of every pair of sketches finds, of many problems with common wording', () => {
    const words = Array.from({ length: 12 }, (_, i) => `word${String.fromCharCode(97 + i)}`);
    const problem = fc
      .array(fc.constantFrom(...words), { minLength: 6, maxLength: 14 })
      .map((list) => list.join(' '));
    const edited = fc
      .tuple(problem, fc.nat(200))
      .map(([text, n]) => [text, `${text} and word${n % 7}`, text.toUpperCase()][n % 3] as string);
    const problems = fc.array(edited, { maxLength: 120 });
    const isNear = (a: string, b: string) => {
      const [one, other] = [problemKey(a).sketch, problemKey(b).sketch];
      const smallest = [...new Set([...one, ...other])].sort((x, y) => x - y).slice(0, 16);
      const both = smallest.filter((hash) => one.includes(hash) && other.includes(hash)).length;
      const common = one.filter((hash) => other.includes(hash)).length;
      return common > 0 && common >= Math.max(one.length, other.length) / 2 && both >= smallest.length / 2;
    };
    fc.assert(
      fc.property(problems, problems, (train, test) => {
        const all = [...train, ...train.slice(0, 9).map((text) => `${text} so`)];
        const like = likenessTo(test.map(problemKey));
        const wanted = { same: new Set<string>(), near: new Set<string>() };
        for (const text of test) {
          const own = normalizeProblem(text);
          if (all.some((other) => normalizeProblem(other) === own)) wanted.same.add(own);
          else if (all.some((other) => isNear(other, text))) wanted.near.add(own);
        }
        const { same, near } = overlap(all, test);
        expect({ same, near }).toEqual({ same: wanted.same.size, near: wanted.near.size });
        for (const text of all) {
          const isSame = test.some((other) => normalizeProblem(other) === normalizeProblem(text));
          const kind = isSame ? 'same' : test.some((other) => isNear(text, other)) ? 'near' : undefined;
          expect(like(problemKey(text))).toBe(kind);
        }
      }),
      { numRuns: 40 },
    );
  });

  const train = sharedPath('data/math/train.jsonl.gz');
  const math500 = sharedPath('data/math/math500.jsonl');
  it.skipIf(!train || !math500)('agrees with a full comparison of all pairs of MATH', () => {
    const problems = (bytes: Buffer) =>
      bytes
        .toString()
        .trim()
        .split('\n')
        .map((line) => (JSON.parse(line) as { problem: string }).problem);
    const [known, asked] = [problems(gunzipSync(readFileSync(train!))), problems(readFileSync(math500!))];
    const runs = (problem: string) => {
      const words = normalizeProblem(problem).match(/[\p{L}\p{N}]+/gu) ?? [];
      return new Set(words.slice(4).map((_, i) => words.slice(i, i + 5).join(' ')));
    };
    const sets = known.map(runs);
    // Pairs that share nothing have nothing to count.
    const holding = new Map<string, number[]>();
    sets.forEach((set, i) => {
      for (const run of set) holding.set(run, [...(holding.get(run) ?? []), i]);
    });
    const exact = asked.filter((problem) => {
      const mine = runs(problem);
      const shared = new Map<number, number>();
      for (const run of mine) for (const i of holding.get(run) ?? []) shared.set(i, (shared.get(i) ?? 0) + 1);
      return [...shared].some(([i, both]) => both / (mine.size + sets[i]!.size - both) >= 0.5);
    }).length;
    const { same, near } = overlap(known, asked);
    expect(same).toBe(0);
    expect(exact).toBeGreaterThan(15);
    // An estimate from 16 hashes.
    expect(Math.abs(near - exact)).toBeLessThan(0.4 * exact);
  });
});
