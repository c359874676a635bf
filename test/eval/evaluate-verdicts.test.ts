import { describe, expect, it } from 'vitest';
import {
  type EvaluationOptions,
  evaluateVerdicts,
  verdictMetrics,
} from '../../src/eval/evaluate-verdicts.js';
import { formatEvalTable } from '../../src/eval/reports/report-table.js';
import { confusionMetrics } from '../../src/eval/statistics/metrics.js';
import type { StepLabel, StepRecord } from '../../src/records/record.js';
import type { JudgedVerdict } from '../../src/scoring/verdict/judged.js';

function record(problem: string, labels: readonly StepLabel[], file?: string): StepRecord {
  return {
    problem,
    steps: labels.map((label, i) => ({ text: `step ${i}`, label, kind: 'normal' })),
    ...(file ? { provenance: { file } } : {}),
  };
}

function judge(records: readonly StepRecord[], probability: (solution: number, step: number) => number) {
  return records.flatMap(({ steps }, solution) =>
    steps.flatMap(({ label }, step): JudgedVerdict[] => {
      if (label === null) return [];
      const p = probability(solution, step);
      const verdict = p >= 0.5 ? 1 : 0;
      return [
        {
          solution,
          step,
          label,
          verdict,
          probability: p,
          logPositive: Math.log(p),
          logNegative: Math.log(1 - p),
        },
      ];
    }),
  );
}

const records = [
  record('a', [1, 1, 0, null], 'data/gsm8k.json.gz'),
  record('a', [1, 1], 'data/gsm8k.json.gz'),
  record('b', [0], 'data/math-00000-of-00002.parquet'),
  record('c', [1, 1, 1], 'data/math-00001-of-00002.parquet'),
  record('d', [null, 1], 'data/math-00001-of-00002.parquet'),
];
const options: EvaluationOptions = {
  method: 'stepamc',
  data: { source: 'processbench', train_steps: 7 },
  records,
  invalidAsWrong: true,
  positivePrior: 0.75,
  bootstrap: { resamples: 50 },
};
// Right except in the last step of solution 3.
const judged = judge(records, (solution, step) =>
  solution === 3 && step === 2 ? 0.25 : records[solution]!.steps[step]!.label === 1 ? 0.875 : 0.125,
);

describe('the breakdown by kind of error', () => {
  const named = records.map((of) => ({
    ...of,
    steps: of.steps.map((step) => (step.label === 0 ? { ...step, error: 'slip of 1' } : step)),
  }));
  const told = (found: readonly JudgedVerdict[], from: Partial<EvaluationOptions> = {}) =>
    evaluateVerdicts(found, { ...options, records: named, ...from });

  it('has the share of verdicts that are the label, of right steps and of each kind, also over unseen ones', () => {
    const seen = ({ solution }: { solution: number }) => solution !== 3;
    expect(told(judged, { seen }).errors).toEqual({
      right: { n: 8, told: 7 / 8, unseen: { n: 3, told: 2 / 3 } },
      'slip of 1': { n: 2, told: 1, auc: 1, unseen: { n: 0, told: 0 } },
    });
    expect(told(judged).errors?.right).toEqual({ n: 8, told: 7 / 8 });
    const lines = formatEvalTable(told(judged, { seen }), { boxed: false }).split('\n');
    const row = (title: string) => lines.find((line) => line.startsWith(title))?.split(/ {2,}/);
    expect(row('recall by kind of error, %')?.slice(1)).toEqual(['steps', 'judge', 'unseen', 'judge']);
    expect(row('slip of 1')?.slice(1)).toEqual(['2', '100.0', '0', '–']);
  });

  it('counts a verdict that cannot be read as not told', () => {
    const unread = judged.map((each) => (each.label === 0 ? { ...each, verdict: undefined } : each));
    expect(told(unread).errors?.['slip of 1']).toEqual({ n: 2, told: 0, auc: 1 });
  });

  it('is absent where no step says what is wrong with it', () => {
    expect(evaluateVerdicts(judged, options).errors).toBeUndefined();
  });
});

it('begins with the reading', () => {
  const others = { sft: judged.map((each) => ({ ...each, verdict: 1 as const })) };
  const text = formatEvalTable(evaluateVerdicts(judged, { ...options, others }), { boxed: false });
  expect(text).toMatch(/^Reading: on the 10 steps stepamc has F1 macro/);
});

describe('the breakdown by a column', () => {
  const grouped = records.map((of, i) => ({
    ...of,
    group: i < 2 ? 'level 10' : i === 2 ? 'level 2' : 'level 9',
  }));

  it('has the metrics of the steps of each group, in order of names', () => {
    const report = evaluateVerdicts(judged, { ...options, records: grouped });
    expect(
      Object.entries(report.groups ?? {}).map(([name, { n, positives }]) => [name, n, positives]),
    ).toEqual([
      ['level 2', 1, 0],
      ['level 9', 4, 4],
      ['level 10', 5, 4],
    ]);
    const alone = evaluateVerdicts(
      judged.filter(({ solution }) => solution < 2),
      { ...options, records: grouped.slice(0, 2) },
    );
    expect(report.groups?.['level 10']).toEqual({ ...alone.metrics, positives: 4 });
    expect(Object.keys(report.processbench?.subsets ?? {}).sort()).toEqual([
      'level 10',
      'level 2',
      'level 9',
    ]);
    const lines = formatEvalTable(report, { boxed: false }).split('\n');
    const row = (name: string) =>
      lines
        .find((line) => line.startsWith(name))
        ?.slice(name.length)
        .trim()
        .split(/ +/);
    expect(row('by group, %')).toEqual(['steps', 'Acc_pos', 'Acc_neg', 'F1', 'macro', 'AUC']);
    // Metrics of a class that the group has not are no zeros.
    expect(row('level 2')).toEqual(['1', '–', '100.0', '–', '–']);
    expect(row('level 9')).toEqual(['4', '75.0', '–', '–', '–']);
  });

  it('is absent where no solution has a group', () => {
    expect(evaluateVerdicts(judged, options).groups).toBeUndefined();
  });
});

describe('the evaluation of judged verdicts', () => {
  const report = evaluateVerdicts(judged, options);

  it('has the metrics, the baselines and the counts of judged steps', () => {
    expect(report.metrics).toMatchObject({ n: 10, acc_pos: 7 / 8, acc_neg: 1, invalid: 0, auc: 1 });
    expect(report.baselines.majority).toMatchObject({ n: 10, acc_pos: 1, acc_neg: 0 });
    expect(report.baselines.random).toMatchObject({ acc_pos: 0.75, acc_neg: 0.25 });
    expect(report.data).toEqual({
      source: 'processbench',
      train_steps: 7,
      test_solutions: 5,
      test_steps: 10,
    });
  });

  it('scores the first wrong step by file, for solutions with labels up to it', () => {
    expect(report.processbench).toEqual({
      subsets: {
        gsm8k: { n: 2, err_acc: 1, cor_acc: 1, f1: 1 },
        math: { n: 2, err_acc: 1, cor_acc: 0, f1: 0 },
      },
      average_f1: 0.5,
    });
  });

  it('counts a faultless solution with an unjudged step as missed', () => {
    const cut = judged.filter(({ solution, step }) => !(solution === 1 && step === 1));
    expect(evaluateVerdicts(cut, options).processbench?.subsets.gsm8k).toMatchObject({
      err_acc: 1,
      cor_acc: 0,
    });
  });

  it('selects thresholds only on validation steps', () => {
    expect(report.threshold_sweep?.chosen).toBeUndefined();
    const validation = [
      { label: 1, probability: 0.2, verdict: 0 },
      { label: 0, probability: 0.1, verdict: 0 },
    ] as const;
    const { threshold_sweep, metrics_validation } = evaluateVerdicts(judged, { ...options, validation });
    expect(metrics_validation).toMatchObject({ n: 2, acc_pos: 0, acc_neg: 1, auc: 1 });
    expect(threshold_sweep?.chosen?.f1_macro.threshold).toBeCloseTo(0.15, 12);
    expect(threshold_sweep?.chosen?.f1_macro.metrics).toMatchObject({ acc_pos: 1, acc_neg: 1 });
  });

  it('includes other models on the same steps, and warns below SFT', () => {
    const sft = { ...report.metrics, f1_macro: 0.99 };
    const beside = evaluateVerdicts(judged, { ...options, baselines: { before: report.metrics, sft } });
    expect(Object.keys(beside.baselines)).toEqual([
      'always_positive',
      'always_negative',
      'majority',
      'random',
      'before',
      'sft',
    ]);
    expect(beside.warnings).toEqual([expect.stringContaining('is below the 99.0 of the SFT model')]);
    const [head] = formatEvalTable(beside, { boxed: false }).split('\n');
    expect(head!.split(/ {2,}/)).toEqual([
      '10 steps, %',
      'before',
      'warm-up',
      'stepamc',
      '95 % CI',
      'random',
      'majority',
    ]);
    for (const boxed of [true, false]) {
      for (const line of formatEvalTable(beside, { boxed }).split('\n'))
        expect(line.length).toBeLessThanOrEqual(80);
    }
  });

  it('reports given warnings together with the signs of failure', () => {
    const lost = judge(records, () => 0.9);
    expect(evaluateVerdicts(lost, { ...options, warnings: ['first'] }).warnings).toEqual([
      'first',
      expect.stringContaining(
        'it answers "right" to every step; AUC 50.0 (25.5 to 74.5) is not told apart from chance',
      ),
    ]);
    const lines = formatEvalTable(evaluateVerdicts(lost, options), { boxed: false }).replaceAll('\n', ' ');
    expect(lines).toContain('Reading: stepamc on the 10 steps: it answers "right" to every step; AUC 50.0');
  });

  it('says that a good result on few problems says little', () => {
    expect(report.warnings).toEqual(['10 steps of 4 test problems say little of any judge: hold out more']);
  });

  it('tells the steps that stand in the training data from the others', () => {
    // All but solution 3 were trained on; its last step is judged wrongly.
    const seen = ({ solution }: { readonly solution: number }) => solution !== 3;
    const sft = report.metrics;
    const split = evaluateVerdicts(judged, {
      ...options,
      baselines: { sft },
      baselinesUnseen: { sft },
      seen,
    });
    expect(split.data.seen_share).toBeCloseTo(0.7, 12);
    expect(split.metrics).toEqual(report.metrics);
    expect(Object.keys(split.metrics_unseen!)).toEqual(
      Object.keys(confusionMetrics({ tp: 1, fn: 0, fp: 0, tn: 1 })).concat('invalid'),
    );
    expect(split.metrics_unseen).toMatchObject({ n: 3, acc_pos: 2 / 3, acc_neg: 0 });
    expect(split.metrics_seen).toMatchObject({ n: 7, acc_pos: 1, acc_neg: 1 });
    expect(split.baselines_unseen).toMatchObject({ majority: { n: 3, acc_pos: 1 }, sft });
    expect(split.warnings).toContainEqual(
      expect.stringContaining('70.0 % of the judged steps stand word for word'),
    );
    const table = formatEvalTable(split, { boxed: false });
    expect(table).toContain('3 unseen');
    expect(table.split('\n').every((line) => line.length <= 80)).toBe(true);

    const nothing = evaluateVerdicts(judged, { ...options, seen: () => true });
    expect(nothing).not.toHaveProperty('metrics_unseen');
    expect(nothing.warnings).toContain(
      'every judged step stands word for word in the training data: nothing is held out',
    );
    const all = evaluateVerdicts(judged, { ...options, seen: () => false });
    expect(all.data.seen_share).toBe(0);
    expect(all.metrics_unseen).toEqual(report.metrics);
    expect(all.intervals_unseen).toEqual(report.intervals);
    expect(formatEvalTable(all, { boxed: false })).not.toContain('unseen');
    expect(report.data).not.toHaveProperty('seen_share');
  });

  it('reads the table: differences to the others are paired, on the unseen steps', () => {
    const many = Array.from({ length: 60 }, (_, i) => record(`problem ${i}`, [1, 0, 1, 0]));
    const right = (solution: number, step: number) => (many[solution]?.steps[step]?.label === 1 ? 0.9 : 0.1);
    const own = judge(many, (solution, step) => (solution % 4 === 0 ? 0.9 : right(solution, step)));
    const worse = judge(many, (solution, step) => (solution % 2 === 0 ? 0.9 : right(solution, step)));
    const others = { sft: worse, base: judge(many, right), reward_network: own };
    const found = evaluateVerdicts(own, {
      ...options,
      records: many,
      others,
      seen: ({ solution }) => solution < 20,
    });
    expect(found.differences).toMatchObject({ steps: 'unseen', n: 160 });
    const { sft, base, reward_network, random } = found.differences!.to;
    const f1 = (judged: readonly JudgedVerdict[]) =>
      evaluateVerdicts(
        judged.filter(({ solution }) => solution >= 20),
        { ...options, records: many },
      ).metrics.f1_macro;
    expect(sft!.difference).toBeCloseTo(f1(own) - f1(worse), 12);
    expect(sft!.interval[0]).toBeGreaterThan(0);
    expect(base!.interval[1]).toBeLessThan(0);
    // 0 of 40 unseen problems differ: 1.96² / (40 + 1.96²).
    expect(reward_network).toEqual({
      difference: 0,
      interval: [expect.closeTo(-0.0876, 4), expect.closeTo(0.0876, 4)],
    });
    expect(random!.interval[0]).toBeGreaterThan(0.1);
    const table = formatEvalTable(found, { boxed: false }).replace(/\s+/g, ' ');
    expect(table).toMatch(
      /Reading: on the 160 unseen steps \w+ has F1 macro 8\d\.\d: better than its warm-up \(\+/,
    );
    expect(table).toMatch(/and chance \(.*; worse than the base \(−/);
    expect(table).toContain('; the same as the reward network.');
    expect(report).not.toHaveProperty('differences');
  });

  it('warns if nothing was judged', () => {
    const empty = evaluateVerdicts([], { ...options, records: [] });
    expect(empty.metrics).toMatchObject({ n: 0, f1_macro: 0 });
    expect(empty.warnings).toEqual(['no step was judged']);
    expect(Object.keys(empty).sort()).toEqual(['baselines', 'data', 'method', 'metrics', 'warnings']);
  });
});

it('is refused in a sentence where a model gives something that is not a number', () => {
  // One class alone has no ranking, and a comparison with a number that is none is false.
  const judged = judge([record('p', [1, 1])], (_, step) => (step === 1 ? Number.NaN : 0.9));
  expect(() => verdictMetrics(judged, { invalidAsWrong: true })).toThrow(
    'the model gives something that is not a number for judged step 2: its weights are damaged',
  );
});
