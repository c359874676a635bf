import { expect, it } from 'vitest';
import { usualTop } from '../../src/report/usual-top.js';

const curve = (first: number) => [first, ...Array.from({ length: 49 }, (_, i) => 0.7 - 0.008 * i)];

it('leaves out a beginning that flattens the rest, and nothing else', () => {
  const top = usualTop(curve(10.6)) as number;
  expect(top).toBeGreaterThan(0.66);
  expect(top).toBeLessThan(0.8);
  expect(usualTop(curve(0.8))).toBeUndefined();
  // A peak in the middle is no beginning, and a short or a constant curve has none.
  expect(usualTop(curve(0.7).with(25, 10.6))).toBeUndefined();
  expect(usualTop(curve(10.6).slice(0, 15))).toBeUndefined();
  expect(usualTop([9, ...Array.from({ length: 49 }, () => 1)])).toBeUndefined();
});
