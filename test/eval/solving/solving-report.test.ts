// The table of an evaluation of solving.
import { describe, expect, it } from 'vitest';
import { formatSolvingTable, type SolvingReport } from '../../../src/eval/solving/solving-report.js';

describe('the table by group', () => {
  it('has a dash where a group has no such share, and every column that a group has', () => {
    const group = (metrics: Readonly<Record<string, number>>) => ({
      problems: 2,
      metrics: Object.fromEntries(Object.entries(metrics).map(([name, value]) => [name, { value }])),
    });
    const report = {
      ...{ problems: 4, n: 2, metrics: {}, bootstrap: { seed: 42, resamples: 1000, confidence: 0.95 } },
      ...{ settings: {}, grading: { expect: 'any', units: 'optional', digits: 6 } },
      groups: { easy: group({ 'pass@1': 1 }), hard: group({ 'pass@1': 0.5, auc_within: 0.75 }) },
    } satisfies SolvingReport;
    const table = formatSolvingTable(report, { boxed: false });
    expect(table).toMatch(/by group, % +problems +pass@1 +AUC within a problem/);
    expect(table).toMatch(/easy +2 +100\.0 +–\n/);
    expect(table).toMatch(/hard +2 +50\.0 +75\.0/);
  });
});
