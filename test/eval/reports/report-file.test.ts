import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { beforeEach, describe, expect, it } from 'vitest';
import { evaluateVerdicts } from '../../../src/eval/evaluate-verdicts.js';
import { readEvalReport, readRunEvaluation } from '../../../src/eval/reports/report-file.js';
import { baselineMetrics, confusionMetrics } from '../../../src/eval/statistics/metrics.js';
import { writeJson } from '../../../src/files/json-file.js';
import { temporaryDirectory } from '../../weights/temporary-directory.js';

let path: string;
beforeEach(() => {
  path = join(temporaryDirectory(), 'eval.json');
});

const records = ['a', 'b'].map((problem) => ({
  problem,
  steps: [
    { text: 'x', label: 1 as const, kind: 'normal' as const },
    { text: 'x', label: 0 as const, kind: 'normal' as const, error: 'slip of 1' },
  ],
}));
const judged = records.flatMap((record, solution) =>
  record.steps.map(({ label }, step) => ({
    solution,
    step,
    label,
    verdict: solution === 0 ? label : undefined,
    probability: 0.1 + 0.2 * (solution + 2 * step),
    logPositive: -1,
    logNegative: -1,
  })),
);
const metrics = confusionMetrics({ tp: 2, fn: 1, fp: 1, tn: 1 });
const report = evaluateVerdicts(judged, {
  method: 'stepamc',
  data: { source: 'record', files: [] },
  records,
  invalidAsWrong: true,
  positivePrior: 0.5,
  validation: judged,
  baselines: { sft: { ...metrics, auc: 0.5, invalid: 1 } },
  likelihood: {
    weights: { constant: 1, verdict: 1, least: 1, before: 0 },
    words: judged,
    both: judged,
    validation: judged,
    alone: judged,
  },
  warnings: ['a sentence'],
});

describe('eval.json', () => {
  it('is read back as written, with every optional part', async () => {
    expect(Object.keys(report).sort()).toEqual([
      'baselines',
      'calibration',
      'data',
      'differences',
      'errors',
      'intervals',
      'likelihood',
      'method',
      'metrics',
      'metrics_validation',
      'processbench',
      'threshold_sweep',
      'warnings',
      'words',
    ]);
    expect(Object.keys(report.words?.baselines ?? {})).toContain('sft');
    await writeJson(path, report);
    expect(await readEvalReport(path)).toEqual(report);
  });

  it('is read back with differences to other judges', async () => {
    const to = { sft: { difference: -0.1, interval: [-0.2, 0.1] as const } };
    const compared = { ...report, differences: { steps: 'unseen' as const, n: 5, to } };
    await writeJson(path, compared);
    expect(await readEvalReport(path)).toEqual(compared);
  });

  it('may contain only the metrics', async () => {
    const plain = {
      method: 'sft',
      data: {},
      metrics,
      baselines: baselineMetrics({ positives: 3, negatives: 2, positivePrior: 0.5 }),
    };
    await writeJson(path, plain);
    expect(await readEvalReport(path)).toEqual(plain);
  });

  it.each([
    [{ metrics: { ...metrics, f1_macro: 1.5 } }, 'metrics.f1_macro: '],
    [{ baselines: { ...report.baselines, sft: { n: 4 } } }, 'baselines.sft.accuracy: '],
    [{ baselines: {} }, 'baselines.always_positive: '],
    [{ intervals: { ...report.intervals, metrics: { f1_macro: [0.1] } } }, 'intervals.metrics.f1_macro'],
    [{ calibration: { ece: 0.1, brier: 0.1 } }, 'calibration.bins: '],
    [{ threshold_sweep: { table: [{ threshold: 0.5 }] } }, 'threshold_sweep.table.0.metrics: '],
    [{ processbench: { subsets: { math: {} } } }, 'processbench.subsets.math.n: '],
    [{ warnings: 'none' }, 'warnings: '],
  ])('is refused with the place where it holds something else: %j', async (change, place) => {
    await writeJson(path, { ...report, ...change });
    await expect(readEvalReport(path)).rejects.toThrow(`${path} is not an evaluation of steptrain: ${place}`);
  });

  it('is reported missing in one sentence if the run is not finished', async () => {
    const directory = join(path, '..');
    await expect(readRunEvaluation(directory)).rejects.toThrow(
      / holds no eval\.json; name the directory of a finished run/,
    );
    writeFileSync(join(directory, 'config.yaml'), 'method: sft');
    await expect(readRunEvaluation(directory)).rejects.toThrow(
      /holds no eval\.json: the run has not ended, or its method evaluates nothing of the kind; continue with: npx steptrain run --resume /,
    );
  });
});
