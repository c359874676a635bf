import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { normalizeProblem, type VerdictSample, verdictSamples } from '../../src/data/record.js';
import {
  balanceClasses,
  PARTS,
  problemOverlap,
  splitSamples,
  splitter,
  takeSamples,
} from '../../src/data/split.js';
import { sharedPath } from '../shared.js';
import { load } from './collect.js';

const sample = (problem: string, label: 1 | 0 = 1, steps: string[] = ['s']): VerdictSample => ({
  problem,
  steps,
  label,
  group: normalizeProblem(problem),
});

describe('the split', () => {
  it('gives every sample to one part, all samples of a problem to the same, however it is spelled', () => {
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

  it('meets the shares, depends on the seed, and never moves a sample when others come or go', () => {
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

  it('by sample, siblings of a problem may part', () => {
    const siblings = Array.from({ length: 300 }, (_, i) => sample('P', 1, [`step ${i}`]));
    const together = splitSamples(siblings, { seed: 3 });
    expect(PARTS.filter((part) => together[part].length > 0)).toHaveLength(1);
    const apart = splitSamples(siblings, { seed: 3, split_unit: 'sample' });
    expect(PARTS.filter((part) => apart[part].length > 0)).toHaveLength(3);
  });

  it('takes any shares, none included, and refuses those that are not shares', () => {
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

describe('balanceClasses', () => {
  it('leaves equally many of both classes, in order, the same ones whatever surrounds them', () => {
    const samples = Array.from({ length: 400 }, (_, i) => sample(`Problem ${i}`, i % 4 === 0 ? 0 : 1));
    const balanced = balanceClasses(samples, 1);
    expect(balanced.filter((entry) => entry.label === 0)).toHaveLength(100);
    expect(balanced).toHaveLength(200);
    expect([...balanced].sort((a, b) => samples.indexOf(a) - samples.indexOf(b))).toEqual(balanced);
    expect(balanceClasses(samples, 1)).toEqual(balanced);
    expect(balanceClasses(samples, 2)).not.toEqual(balanced);
    const reversed = balanceClasses([...samples].reverse(), 1);
    expect(new Set(reversed)).toEqual(new Set(balanced));
  });
});

describe('takeSamples', () => {
  it('takes as many as asked, in order, more with a higher number and others with another seed', () => {
    const samples = Array.from({ length: 100 }, (_, i) => sample(`Problem ${i}`));
    const ten = takeSamples(samples, 10, 1);
    expect(ten).toHaveLength(10);
    expect(samples.filter((entry) => ten.includes(entry))).toEqual(ten);
    expect(takeSamples(samples, 20, 1)).toEqual(expect.arrayContaining([...ten]));
    expect(takeSamples(samples, 10, 2)).not.toEqual(ten);
    expect(takeSamples(samples, 1000, 1)).toBe(samples);
  });
});

describe('problemOverlap', () => {
  it('counts distinct problems of the test set that were trained on', () => {
    const train = ['What is $1+1$?', 'Other'].map((problem) => ({ problem }));
    const test = ['what is  $1+1$? ', 'What is $1+1$?', 'New'].map((problem) => ({ problem }));
    expect(problemOverlap(train, test)).toEqual({ count: 1, examples: ['what is  $1+1$? '] });
    expect(problemOverlap(train, [])).toEqual({ count: 0, examples: [] });
  });
});

const prm800k = sharedPath('data/prm800k/prm800k.jsonl.gz');
const math500 = sharedPath('data/math/math500.jsonl');
describe.skipIf(prm800k === undefined || math500 === undefined)(
  'on PRM800K (needs the shared data)',
  async () => {
    const { records } = await load(prm800k ?? '');

    it('splits by problem without an overlap between the parts', () => {
      const parts = splitSamples(
        records.flatMap((record) => [...verdictSamples(record)]),
        { seed: 0 },
      );
      expect(parts.train.length / 10_801).toBeGreaterThan(0.65);
      expect(problemOverlap(parts.train, parts.test).count).toBe(0);
      expect(problemOverlap(parts.train, parts.validation).count).toBe(0);
      expect(problemOverlap(parts.train, parts.train).count).toBeGreaterThan(100);
    });
  },
);
