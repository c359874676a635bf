import { describe, expect, test } from 'vitest';
import { solutionsWithReasons, withholdLabels } from '../../src/data/withheld.js';
import { PhiloxStream } from '../../src/random/philox.js';

const solutions = Array.from({ length: 400 }, (_, index) => ({ index, labels: [1, 0, null, 1] as const }));

function ranksOf(index: number, seed: number): number[] {
  const draw = new PhiloxStream(seed, 1, index);
  return [draw.uniform(), draw.uniform(), draw.uniform(), draw.uniform()];
}

const withheld = (options: { labelled?: number | 'all'; label_noise?: number }, seed = 1) =>
  withholdLabels(solutions, ranksOf, { seed, labelled: 'all', label_noise: 0, ...options });

describe('labels that training does not get', () => {
  test('nothing changes by default, and no rank is asked for', () => {
    const found = withholdLabels(
      solutions,
      () => {
        throw new Error('asked');
      },
      { seed: 1, labelled: 'all', label_noise: 0 },
    );
    expect(found).toEqual(solutions);
  });

  test('as many solutions as asked for keep all their labels, by seed', () => {
    const kept = (seed: number) =>
      withheld({ labelled: 30 }, seed).flatMap(({ index, labels }) =>
        labels.some((label) => label !== null) ? [index] : [],
      );
    expect(kept(1)).toHaveLength(30);
    expect(kept(1)).toEqual(kept(1));
    expect(kept(1)).not.toEqual(kept(2));
    for (const { index, labels } of withheld({ labelled: 30 }))
      expect(kept(1).includes(index) ? [1, 0, null, 1] : [null, null, null, null]).toEqual(labels);
    expect(withheld({ labelled: 1000 })).toEqual(solutions);
  });

  test('noise flips its share of the labels and makes none', () => {
    const flipped = withheld({ label_noise: 0.2 }).flatMap(({ labels }) =>
      labels.flatMap((label, step) => {
        const before = solutions[0]?.labels[step];
        expect(label === null).toBe(before === null);
        return label === null ? [] : [label !== before];
      }),
    );
    const share = flipped.filter(Boolean).length / flipped.length;
    expect(share).toBeGreaterThan(0.15);
    expect(share).toBeLessThan(0.25);
  });

  test('the solutions that keep their labels are the same with and without noise', () => {
    const labelled = (noise: number) =>
      withheld({ labelled: 30, label_noise: noise }).map(({ labels }) =>
        labels.map((label) => label !== null),
      );
    expect(labelled(0.3)).toEqual(labelled(0));
  });
});

describe('reasons that training keeps', () => {
  const kept = (rationales: number | 'all', seed = 1) =>
    solutionsWithReasons(solutions.slice(100), ranksOf, { seed, rationales });

  test('all of them by default, and no rank is asked for', () => {
    const refuse = () => {
      throw new Error('asked');
    };
    expect(solutionsWithReasons(solutions, refuse, { seed: 1, rationales: 'all' })).toBeUndefined();
  });

  test('those of as many solutions as asked for, by seed and by their own index', () => {
    const some = kept(30);
    expect(some?.size).toBe(30);
    expect([...(some ?? [])].every((index) => index >= 100)).toBe(true);
    expect(kept(30)).toEqual(some);
    expect(kept(30, 2)).not.toEqual(some);
    expect(kept(1000)?.size).toBe(300);
  });
});
