import { describe, expect, it } from 'vitest';
import { formatEvalTable } from '../../../src/eval/reports/report-table.js';
import { baselineMetrics, confusionMetrics } from '../../../src/eval/statistics/metrics.js';

const report = {
  method: 'sft',
  data: { source: 'arithmetic' },
  metrics: { ...confusionMetrics({ tp: 700, fn: 100, fp: 60, tn: 140 }), invalid: 3, auc: 0.9123 },
  baselines: baselineMetrics({ positives: 800, negatives: 200, positivePrior: 0.8 }),
};

describe('evaluation table', () => {
  it('shows the model beside its baselines, in percent', () => {
    const lines = formatEvalTable(report, { boxed: false }).split('\n');
    expect(lines[0]!.split(/ {2,}/)).toEqual([
      '1000 steps, %',
      'sft',
      'random',
      'majority',
      'all right',
      'all wrong',
    ]);
    const row = (title: string) =>
      lines
        .find((line) => line.startsWith(title))!
        .split(/ {2,}/)
        .slice(1);
    expect(row('Acc_pos')).toEqual(['87.5', '80.0', '100.0', '100.0', '0.0']);
    expect(row('F1 macro')).toEqual(['76.7', '50.0', '44.4', '44.4', '16.7']);
    expect(row('AUC')).toEqual(['91.2', '50.0', '50.0', '50.0', '50.0']);
    expect(lines.at(-1)).toBe('verdicts that could not be read: 3');
  });

  it('shows no number where a class was not judged', () => {
    const oneClass = {
      ...report,
      metrics: confusionMetrics({ tp: 7, fn: 3, fp: 0, tn: 0 }),
      baselines: baselineMetrics({ positives: 10, negatives: 0, positivePrior: 0.8 }),
    };
    const lines = formatEvalTable(oneClass, { boxed: false }).split('\n');
    const row = (title: string) => lines.find((line) => line.startsWith(title))!.split(/ {2,}/);
    for (const title of ['Acc_neg', 'F1_neg', 'F1 macro', 'balanced accuracy', 'F1 harmonic'])
      expect(row(title).slice(1), title).toEqual(['–', '–', '–', '–', '–']);
    expect(row('Acc_pos').slice(1)).toEqual(['70.0', '80.0', '100.0', '100.0', '0.0']);
  });

  it('is a sentence where no step was judged', () => {
    const nothing = {
      ...report,
      metrics: confusionMetrics({ tp: 0, fn: 0, fp: 0, tn: 0 }),
      baselines: baselineMetrics({ positives: 0, negatives: 0, positivePrior: 0.8 }),
    };
    const text = formatEvalTable(nothing, { boxed: true }).replaceAll('\n', ' ');
    expect(text).toMatch(/^No test step was judged, so there is no table: the test part is empty/);
    expect(text).not.toMatch(/0\.0/);
  });

  it('fits a terminal of 80 columns, framed or plain', () => {
    for (const boxed of [true, false]) {
      for (const line of formatEvalTable(report, { boxed }).split('\n')) {
        expect(line.length).toBeLessThanOrEqual(80);
      }
    }
    expect(formatEvalTable(report, { boxed: true })).toContain('│');
    expect(formatEvalTable(report, { boxed: false })).not.toContain('│');
  });
});
