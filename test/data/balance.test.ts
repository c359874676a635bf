import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { balanceClasses, type RankedLabels } from '../../src/data/balance.js';
import type { StepLabel } from '../../src/records/record.js';

const label = fc.constantFrom<StepLabel>(1, 1, 1, 0, null);
const solutions = fc
  .array(
    fc.array(fc.tuple(label, fc.double({ min: 0, max: 1, noNaN: true })), { minLength: 1, maxLength: 6 }),
  )
  .map((all) =>
    all.map((steps): RankedLabels => ({ labels: steps.map(([l]) => l), ranks: steps.map(([, r]) => r) })),
  )
  .filter((all) => count(all, 1) > 0 && count(all, 0) > 0);

function count(all: readonly { readonly labels: readonly StepLabel[] }[], wanted: 1 | 0): number {
  return all.flatMap(({ labels }) => labels).filter((found) => found === wanted).length;
}

describe('balanced classes', () => {
  it('are equally frequent after dropping labels of the more frequent one', () => {
    fc.assert(
      fc.property(solutions, (all) => {
        const balanced = balanceClasses(all, 'downsample');
        const rarer = Math.min(count(all, 1), count(all, 0));
        expect([count(balanced, 1), count(balanced, 0)]).toEqual([rarer, rarer]);
        for (const { index, labels } of balanced) {
          labels.forEach((found, i) => {
            if (found !== null) expect(found).toBe(all[index]!.labels[i]);
          });
          expect(labels.some((found) => found !== null)).toBe(true);
        }
        expect(balanced.map(({ index }) => index)).toEqual(
          [...balanced.map(({ index }) => index)].sort((a, b) => a - b),
        );
      }),
    );
  });

  it('are equally frequent after repeating the rarer one, each step nearly equally often', () => {
    fc.assert(
      fc.property(solutions, (all) => {
        const balanced = balanceClasses(all, 'upsample');
        const commoner = Math.max(count(all, 1), count(all, 0));
        expect([count(balanced, 1), count(balanced, 0)]).toEqual([commoner, commoner]);
        const times = new Map<string, number>();
        for (const { index, labels } of balanced) {
          labels.forEach((found, i) => {
            if (found !== null)
              times.set(`${index} ${i} ${found}`, (times.get(`${index} ${i} ${found}`) ?? 0) + 1);
          });
        }
        for (const wanted of [1, 0]) {
          const counts = [...times].filter(([key]) => key.endsWith(` ${wanted}`)).map(([, n]) => n);
          expect(Math.max(...counts) - Math.min(...counts)).toBeLessThanOrEqual(1);
        }
      }),
    );
  });

  it('consist of the steps with the smallest ranks', () => {
    const all: RankedLabels[] = [
      { labels: [1, 1], ranks: [0.9, 0.1] },
      { labels: [1], ranks: [0.5] },
      { labels: [0, 1], ranks: [0.99, 0.2] },
      { labels: [null, 0], ranks: [0, 0] },
    ];
    expect(balanceClasses(all, 'downsample')).toEqual([
      { index: 0, labels: [null, 1] },
      { index: 2, labels: [0, 1] },
      { index: 3, labels: [null, 0] },
    ]);
    expect(balanceClasses(all, 'upsample').slice(4)).toEqual([
      { index: 2, labels: [0, null] },
      { index: 3, labels: [null, 0] },
    ]);
    expect(balanceClasses(all, 'none').map(({ labels }) => labels)).toEqual(all.map(({ labels }) => labels));
  });

  it('are refused if one class is missing', () => {
    expect(() => balanceClasses([{ labels: [1, 1], ranks: [0, 1] }], 'upsample')).toThrow(
      'data.balance is upsample, and all 2 training steps are of one class; set it to none',
    );
  });
});
