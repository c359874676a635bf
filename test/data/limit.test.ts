// Which items of a part are kept where a config limits their number.
import { expect, test } from 'vitest';
import { limited, problemRank, solutionRank } from '../../src/data/limit.js';
import { sampleRanks } from '../../src/data/split.js';

const problems = Array.from({ length: 400 }, (_, i) => ({
  problem: `${i < 200 ? 'grade' : 'competition'} ${i}`,
}));
const draw = (limit: number | 'all', source = 'problems', seed = 0) =>
  limited(problems, limit, { source, seed }, problemRank);

test('of files in a row, both are drawn from, and the items keep their order', () => {
  const drawn = draw(100);
  expect(drawn).toHaveLength(100);
  const first = drawn.filter(({ problem }) => problem.startsWith('grade')).length;
  expect(first).toBeGreaterThan(30);
  expect(first).toBeLessThan(70);
  expect([...drawn]).toEqual(problems.filter((problem) => drawn.includes(problem)));
});

test('a smaller limit keeps a part of what a larger one keeps; the seed decides which', () => {
  expect(draw(100)).toEqual(expect.arrayContaining([...draw(20)]));
  expect(draw(100)).toEqual(draw(100));
  expect(draw(100, 'problems', 1)).not.toEqual(draw(100));
});

test('generated items, which come in random order, are taken from the front', () => {
  expect(draw(100, 'word_problems')).toEqual(problems.slice(0, 100));
});

test('without a limit, or below it, nothing changes', () => {
  expect(draw('all')).toBe(problems);
  expect(draw(400)).toBe(problems);
});

test('the steps of a solution decide too', () => {
  const rank = (...texts: string[]) =>
    solutionRank({ problem: 'p', steps: texts.map((text) => ({ text })) }, 0);
  expect(rank('a', 'b')).not.toBe(rank('a', 'c'));
  expect(rank('a', 'b')).toBe(rank('a', 'b'));
});

test('the rank of a solution is the last of its steps, whatever is in its texts', () => {
  for (const texts of [[], ['a'], ['a', '', 'é\0b'], ['\ud83d', '\ude00']]) {
    const steps = texts.map((text) => ({ text }));
    const expected = sampleRanks(7, ' What  is X? ', texts).at(-1) ?? 0;
    expect(solutionRank({ problem: ' What  is X? ', steps }, 7)).toBe(expected);
  }
});
