import { expect, it } from 'vitest';
import { TokenRate } from '../../src/train/token-rate.js';

it('averages over steps that roll out and steps that do not', () => {
  const rate = new TokenRate();
  expect(rate.perSecond).toBe(0);
  const seen: number[] = [];
  for (let step = 0; step < 400; step++) {
    // Every eighth step samples for ten seconds; what it trains on is the same.
    rate.add(1000, step % 8 === 0 ? 10 : 0.2);
    if (step >= 64) seen.push(rate.perSecond);
  }
  const mean = 8000 / 11.4;
  expect(Math.min(...seen)).toBeGreaterThan(0.8 * mean);
  expect(Math.max(...seen)).toBeLessThan(1.25 * mean);
});

it('forgets what is long ago', () => {
  const rate = new TokenRate();
  for (let step = 0; step < 100; step++) rate.add(1000, 10);
  for (let step = 0; step < 100; step++) rate.add(1000, 1);
  expect(rate.perSecond).toBeCloseTo(1000);
});
