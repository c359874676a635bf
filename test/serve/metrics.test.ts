// Histograms of the server's times: what Prometheus makes of their buckets.
import { expect, it } from 'vitest';
import { Histogram } from '../../src/serve/metrics.js';

/** Prometheus' `histogram_quantile`: within a bucket times are taken to be spread evenly. */
function quantile(lines: readonly string[], q: number): number {
  const buckets = lines
    .map((line) => /_bucket\{le="([^"]+)"\} (\d+)/.exec(line))
    .filter((found) => found !== null)
    .map(([, bound, count]) => [Number(bound === '+Inf' ? Infinity : bound), Number(count)] as const);
  const rank = q * (buckets.at(-1)?.[1] ?? 0);
  let [from, below] = [0, 0];
  for (const [bound, count] of buckets) {
    if (count >= rank) return from + ((bound - from) * (rank - below)) / (count - below);
    [from, below] = [bound, count];
  }
  return Number.NaN;
}

it.each([0.00016, 0.0007, 0.004, 0.03, 0.8, 40])('of times about %f have quantiles near them', (seconds) => {
  const histogram = new Histogram('times', 'Times.');
  for (let i = 0; i < 100; i++) histogram.observe(seconds * (0.9 + i / 500));
  const lines = histogram.lines();
  for (const q of [0.5, 0.9]) {
    expect(quantile(lines, q)).toBeGreaterThan(seconds / 2.5);
    expect(quantile(lines, q)).toBeLessThan(seconds * 2.5);
  }
  expect(lines).toContain('times_count 100');
  expect(lines.filter((line) => line.includes('e-'))).toEqual([]);
});
