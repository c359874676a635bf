import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { problemKey, problemOverlap } from '../../src/data/overlap.js';
import { PARTS, type Part, sampleRanks, smallestRanks, splitter } from '../../src/data/split.js';
import { normalizeProblem, type VerdictSample, verdictSamples } from '../../src/records/record.js';
import { sharedPath } from '../shared.js';
import { load } from './data-file.js';

const sample = (problem: string, label: 1 | 0 = 1, steps: string[] = ['s']): VerdictSample => ({
  problem,
  steps,
  label,
  group: normalizeProblem(problem),
});

/** Splits samples; each part keeps their order. */
function splitSamples(samples: Iterable<VerdictSample>, options: Parameters<typeof splitter>[0]) {
  const partOf = splitter(options);
  const parts: Record<Part, VerdictSample[]> = { train: [], validation: [], test: [] };
  for (const sample of samples) parts[partOf(sample)].push(sample);
  return parts;
}

describe('the split', () => {
  it('puts all samples of a problem into one part, also if its spelling varies', () => {
    fc.assert(
      fc.property(fc.array(fc.string()), fc.nat(), (problems, seed) => {
        const samples = problems.flatMap((problem) => [
          sample(problem),
          sample(` ${problem.toUpperCase()}\n`, 0, ['s', 't']),
        ]);
        const parts = splitSamples(samples, { seed });
        expect(PARTS.reduce((sum, part) => sum + parts[part].length, 0)).toBe(samples.length);
        const groups = PARTS.map((part) => new Set(parts[part].map((entry) => entry.group)));
        expect(groups.reduce((sum, set) => sum + set.size, 0)).toBe(
          new Set(samples.map((entry) => entry.group)).size,
        );
      }),
    );
  });

  it('meets the shares, depends on the seed, and does not move samples when others are added or removed', () => {
    const problems = Array.from({ length: 4000 }, (_, i) => `Problem ${i}`);
    const partOf = splitter({ seed: 1 });
    const counts = PARTS.map(
      (part) => problems.filter((problem) => partOf(sample(problem)) === part).length / 4000,
    );
    expect(counts[0]).toBeCloseTo(0.8, 1);
    expect(counts[1]).toBeCloseTo(0.1, 1);
    expect(counts[2]).toBeCloseTo(0.1, 1);
    const other = splitter({ seed: 2 });
    const moved = problems.filter((problem) => partOf(sample(problem)) !== other(sample(problem))).length;
    expect(moved).toBeGreaterThan(800);
    const few = splitSamples(
      problems.slice(50, 60).map((problem) => sample(problem)),
      { seed: 1 },
    );
    for (const part of PARTS) for (const entry of few[part]) expect(partOf(entry)).toBe(part);
  });

  it('by sample may put samples of one problem into different parts', () => {
    const siblings = Array.from({ length: 300 }, (_, i) => sample('P', 1, [`step ${i}`]));
    const together = splitSamples(siblings, { seed: 3 });
    expect(PARTS.filter((part) => together[part].length > 0)).toHaveLength(1);
    const apart = splitSamples(siblings, { seed: 3, split_unit: 'sample' });
    expect(PARTS.filter((part) => apart[part].length > 0)).toHaveLength(3);
  });

  it('accepts any shares including 0, and refuses invalid ones', () => {
    const problems = Array.from({ length: 500 }, (_, i) => sample(`Problem ${i}`));
    const parts = splitSamples(problems, { seed: 1, split: [1, 2, 0] });
    expect(parts.test).toHaveLength(0);
    expect(parts.validation.length).toBeGreaterThan(parts.train.length);
    expect(splitSamples(problems, { seed: 1, split: [1, 0, 0] }).train).toHaveLength(500);
    expect(() => splitter({ seed: 1, split: [0, 0, 0] })).toThrow(
      'data.split is [0, 0, 0]; expected three shares',
    );
    expect(() => splitter({ seed: 1, split: [1, -1, 1] })).toThrow('data.split is [1, -1, 1]');
  });
});

describe('selection by rank', () => {
  const ranksOf = (problems: readonly string[], seed: number) =>
    problems.map((problem) => sampleRanks(seed, problem, ['a']).at(-1)!);
  const ten = Array.from({ length: 10 }, (_, i) => `Problem ${i}`);

  it('is uniform, ordered and repeatable', () => {
    const counts = new Map<number, number>();
    for (let seed = 0; seed < 2000; seed++) {
      const chosen = smallestRanks(ranksOf(ten, seed), 3);
      expect(chosen).toEqual([...chosen].sort((a, b) => a - b));
      expect(new Set(chosen).size).toBe(3);
      for (const i of chosen) counts.set(i, (counts.get(i) ?? 0) + 1);
    }
    for (let i = 0; i < 10; i++) expect(Math.abs(counts.get(i)! - 600)).toBeLessThan(100);
    expect(smallestRanks(ranksOf(ten, 1), 99)).toEqual([...ten.keys()]);
  });

  it('adds to a smaller selection, and does not depend on the other data', () => {
    const problems = Array.from({ length: 100 }, (_, i) => `Problem ${i}`);
    const chosen = (list: readonly string[], count: number, seed = 1) =>
      smallestRanks(ranksOf(list, seed), count).map((i) => list[i]);
    expect(chosen(problems, 20)).toEqual(expect.arrayContaining(chosen(problems, 10)));
    expect(chosen(problems, 10, 2)).not.toEqual(chosen(problems, 10));
    expect(new Set(chosen([...problems].reverse(), 10))).toEqual(new Set(chosen(problems, 10)));
    expect(chosen(chosen(problems, 50) as string[], 10)).toEqual(chosen(problems, 10));
  });

  it('ranks a step by the normalised problem and the steps up to it', () => {
    const ranks = sampleRanks(7, 'A problem', ['x', 'y', 'z']);
    expect(sampleRanks(7, ' a  PROBLEM', ['x', 'y'])).toEqual(ranks.slice(0, 2));
    expect(new Set([...ranks, ...sampleRanks(7, 'A problem', ['y', 'x'])]).size).toBe(5);
    for (const rank of ranks) expect(rank >= 0 && rank < 1).toBe(true);
  });
});

const prm800k = sharedPath('data/prm800k/prm800k.jsonl.gz');
const math500 = sharedPath('data/math/math500.jsonl');
describe.skipIf(prm800k === undefined || math500 === undefined)('on PRM800K (needs the shared data)', () => {
  it('leaves no overlap of problems between the parts', async () => {
    const { records } = await load(prm800k ?? '');
    const parts = splitSamples(
      records.flatMap((record) => [...verdictSamples(record)]),
      { seed: 0 },
    );
    expect(parts.train.length / 10_801).toBeGreaterThan(0.65);
    const keys = (part: readonly VerdictSample[]) => part.map(({ problem }) => problemKey(problem));
    expect(problemOverlap(keys(parts.train), keys(parts.test)).same).toBe(0);
    expect(problemOverlap(keys(parts.train), keys(parts.validation)).same).toBe(0);
    expect(problemOverlap(keys(parts.train), keys(parts.train)).same).toBeGreaterThan(100);
  });
});
