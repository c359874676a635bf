import { describe, expect, it } from 'vitest';
import { baselineMetrics, confusionMetrics } from '../../src/eval/metrics.js';
import { formatEvalTable } from '../../src/eval/report.js';

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
      'all correct',
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
