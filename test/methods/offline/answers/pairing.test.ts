import { expect, it } from 'vitest';
import { mismatch, mixProblems } from '../../../../src/methods/offline/answers/pairing.js';
import { PhiloxStream } from '../../../../src/random/philox.js';

const draws = Array.from({ length: 60 }, (_, i) => new PhiloxStream(7, i, 0));

it('every pair joins different problems; a permutation where no problem has more than half', () => {
  for (const draw of draws) {
    const problems = Array.from({ length: 2 + draw.below(20) }, () => draw.below(1 + draw.below(6)));
    const counts = new Map<number, number>();
    for (const problem of problems) counts.set(problem, (counts.get(problem) ?? 0) + 1);
    if (counts.size < 2) {
      expect(() => mismatch(problems)).toThrow(/answers to one problem alone.*use a larger batch_size/s);
      continue;
    }
    const partners = mismatch(problems);
    for (const [i, partner] of partners.entries()) expect(problems[partner]).not.toBe(problems[i]);
    if (2 * Math.max(...counts.values()) <= problems.length)
      expect([...partners].sort((a, b) => a - b)).toEqual(problems.map((_, i) => i));
  }
});

it('exchanges items until two problems meet in each batch, and loses none', () => {
  for (const draw of draws) {
    const problems = Array.from({ length: 40 }, () => draw.below(3));
    const items = problems.map((_, i) => i).sort((a, b) => problems[a]! - problems[b]!);
    const size = 3 + draw.below(6);
    const batches: number[][] = [];
    for (let at = 0; at < items.length; at += size) batches.push(items.slice(at, at + size));
    const mixed = mixProblems(batches, (item) => problems[item]!);
    for (const batch of mixed) expect(new Set(batch.map((item) => problems[item])).size).toBeGreaterThan(1);
    expect(mixed.flat().sort((a, b) => a - b)).toEqual(problems.map((_, i) => i));
  }
});

it('refuses a batch of one, and data of one problem', () => {
  expect(() => mismatch([5])).toThrow(/a batch of 1 has answers to one problem alone/);
  expect(() => mixProblems([[0, 1], [2]], () => 1)).toThrow(/a batch of 2 has answers to one problem alone/);
});
