// What tables print stands in the page that explains it.
import { readFileSync } from 'node:fs';
import { expect, it } from 'vitest';
import { correctionTables } from '../../src/eval/solving/corrections.js';
import { contributions } from '../../src/eval/solving/metrics.js';
import { METRIC_TITLES } from '../../src/eval/solving/solving-report.js';

/** Rows of the tables of a page, by their first cell. */
const firstCells = (page: string) =>
  [...readFileSync(page, 'utf8').matchAll(/^\| (.*?) \|/gm)].map(([, cell]) => cell as string);

it('docs/how-to/solve.md has every metric of eval solve, and each printed name beside its key', () => {
  const sample = {
    answer: '4',
    right: true,
    tokens: 3,
    finish_reason: 'stop' as const,
    score: 0.5,
    steps: [1 as const],
  };
  const found = contributions([
    Array.from({ length: 4 }, (_, i) => ({ ...sample, text: '', prompt: '', problem: 0, sample: i })),
  ]);
  const cells = firstCells('docs/how-to/solve.md');
  const keys = [...found.keys()].map((key) => key.replace(/@\d+$/, '@k'));
  expect(keys).toContain('step_errors');
  for (const key of new Set([...keys, ...Object.keys(METRIC_TITLES)])) {
    const title = METRIC_TITLES[key];
    const written = title === undefined ? `\`${key}\`` : `\`${key}\` “${title}”`;
    expect(
      cells.some((cell) => cell.includes(written)),
      written,
    ).toBe(true);
  }
});

it('docs/methods/s3c.md has every row of its tables', () => {
  const solving = (n: number) => ({
    ...{
      problems: 1,
      n,
      settings: {},
      grading: { expect: 'any' as const, units: 'optional' as const, digits: 6 },
      bootstrap: { seed: 0, resamples: 1, confidence: 0.95 },
    },
    metrics: { 'pass@1': { value: 1 }, ...(n > 1 ? { 'maj@n': { value: 1 } } : {}) },
  });
  const own = { samples: 1, corrections: 0, correction_rate: 0, errors: {}, abandoned_errors: {} };
  const tables = correctionTables({
    greedy: solving(1),
    greedy_corrections: own,
    sampled: solving(4),
    sampled_corrections: own,
    prefixes: {
      ...{ prefixes: 1, trigger_rate: 0, fix_rate: 0, triggered_fix_rate: 0, false_trigger_rate: 0 },
      ...{ repair_rate: 0, spoil_rate: 0, right_rate: 0, harm_rate: 0, trigger_difference: { value: 0 } },
    },
  });
  const cells = firstCells('docs/methods/s3c.md');
  for (const [name] of tables.flatMap((rows) => rows.slice(1)))
    expect(
      cells.some((cell) => cell.includes(name as string)),
      name,
    ).toBe(true);
});
