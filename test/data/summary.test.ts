import { describe, expect, it } from 'vitest';
import { problemKey } from '../../src/data/overlap.js';
import {
  formatTrainingDataSummary,
  type SummarizedSolution,
  summarizeTrainingData,
} from '../../src/data/summary.js';
import type { StepLabel } from '../../src/records/record.js';

const solution = (problem: string, labels: StepLabel[], more: Partial<SummarizedSolution> = {}) => ({
  key: problemKey(problem),
  labels,
  text: () => problem,
  ...more,
});

describe('the summary of the data', () => {
  it('has one column for each part', () => {
    const summary = summarizeTrainingData({
      train: [
        solution('P', [1, 1, 0, null], { tokens: 40 }),
        solution('Q', [1, 0], { tokens: 20, context_steps: 0 }),
        solution('Q', [null, 0], { tokens: 21, context_steps: 1 }),
      ],
      validation: [],
      test: [solution('R', [0, 1], { tokens: 5 })],
    });
    expect(summary.warnings).toEqual([]);
    const table = formatTrainingDataSummary(summary).map((line) => line.split(/ {2,}/));
    expect(table.find(([title]) => title === 'wrong')).toEqual(['wrong', '3 (50.0 %)', '0', '1 (50.0 %)']);
    expect(table.find(([title]) => title === 'steps without a label')?.[1]).toBe('1');
    expect(table.find(([title]) => title === 'tokens per solution')?.[1]).toBe('21, 40, 40');
  });

  it('has no rows of labels where no step of any part has one', () => {
    const titles = (labels: StepLabel[]) =>
      formatTrainingDataSummary(
        summarizeTrainingData({
          train: [solution('P', labels)],
          validation: [],
          test: [solution('Q', [null])],
        }),
      ).map((line) => line.split(/ {2,}/)[0]);
    expect(titles([null, null])).toEqual(['', 'solutions', 'problems', 'steps per solution']);
    expect(titles([1, null])).toContain('labelled steps');
  });

  it('warns of rare classes, truncated steps and held-out problems in the training data', () => {
    const long = 'How many ways are there to put five balls in two boxes if the boxes are alike?';
    const parts = {
      train: [
        ...Array.from({ length: 19 }, (_, i) => solution(`Problem ${i}`, [1], { tokens: 10 })),
        solution(long, [0], { tokens: 900, stepsCut: 1 }),
      ],
      validation: [solution('New', [1, 0], { tokens: 1 })],
      test: [
        solution(' problem  3', [1], { tokens: 1 }),
        solution(long.replace('alike', 'different'), [0], { tokens: 1 }),
        solution('Other', [1], { tokens: 1 }),
      ],
    };
    const rare = (weighed?: boolean) => summarizeTrainingData(parts, { weighed }).warnings[0];
    expect(rare()).toBe('only 1 (5.0 %) of the training steps are wrong');
    expect(rare(true)).toMatch(/^1 \(5\.0 %\) of the train steps, in 1 solution, lie beyond/);
    const summary = summarizeTrainingData(parts, { weighed: false });
    expect(summary.warnings).toEqual([
      'only 1 (5.0 %) of the training steps are wrong; class_weight or data.balance weigh them up',
      '1 (5.0 %) of the train steps, in 1 solution, lie beyond data.max_length and are not read; the longest ' +
        'solution needs 900 tokens and the verdict',
      '1 test problem is also trained on, such as " problem 3"',
      'the training data also have half of the wording of 1 test problems',
    ]);
    expect(summary.overlap.test).toMatchObject({ same: 1, near: 1 });
    expect(formatTrainingDataSummary(summary).filter((line) => line.startsWith('Warning: '))).toHaveLength(4);
  });

  it('warns of solutions that stand in the training part twice', () => {
    const keys = (...stepKeys: number[]) => ({ stepKeys });
    const { warnings } = summarizeTrainingData({
      train: [
        solution('P', [1, 0], keys(1, 2)),
        solution('P', [1, 0], keys(1, 2)),
        solution('P', [1, 0], keys(2, 1)),
        solution('Q', [1, 0], keys(1, 2)),
        solution('P', [1, 0], { ...keys(1, 2), context_steps: 1 }),
      ],
      validation: [],
      test: [],
    });
    expect(warnings).toEqual([
      '1 (20.0 %) of the training solutions stand there already, word for word, with the same problem: they weigh twice or more',
    ]);
  });

  it('warns of held-out steps that stand word for word in the training part', () => {
    const summary = summarizeTrainingData({
      train: [solution('P', [1, 0])],
      validation: [solution('Q', [1, 0], { seen: [false, false] })],
      test: [
        solution('R', [1, null, 0], { seen: [true, true, false] }),
        solution('S', [1, 0], { seen: [false, false] }),
      ],
    });
    // The unlabelled step is not judged, so it does not count.
    expect(summary.seenSteps).toEqual({ validation: 0, test: 1 });
    expect(summary.warnings).toEqual([
      'the training data also have 1 (25.0 %) test steps word for word; a verdict on these may be remembered: read the ' +
        'metrics of the unseen steps',
    ]);
    const table = formatTrainingDataSummary(summary).map((line) => line.split(/ {2,}/));
    expect(table.find(([title]) => title === 'steps also in training')?.slice(-2)).toEqual([
      '0 (0.0 %)',
      '1 (25.0 %)',
    ]);
  });

  it('warns if the training part has only one class', () => {
    const one = summarizeTrainingData({ train: [solution('P', [1, 1])], validation: [], test: [] });
    expect(one.warnings).toEqual(['no training step is wrong: a verdict cannot be learned from one class']);
  });

  it('warns if a held-out part has only one class, and says what cannot be told of it', () => {
    const summary = summarizeTrainingData({
      train: [solution('P', [1, 0])],
      validation: [solution('Q', [1, null]), solution('R', [1])],
      test: [solution('S', [0])],
    });
    expect(summary.warnings).toEqual([
      'no validation step is wrong (2 right): AUC, acc_neg and f1_neg cannot be told there, and f1_macro is at most 50 %; ' +
        'give more rows, name data.validation, or give it a larger share in data.split',
      'no test step is right (1 wrong): AUC, acc_pos and f1_pos cannot be told there, and f1_macro is at most 50 %; ' +
        'give more rows, name data.test, or give it a larger share in data.split',
    ]);
    // Solutions without labels have no class to lack.
    const none = { train: [solution('P', [null])], validation: [solution('Q', [null])], test: [] };
    expect(summarizeTrainingData(none).warnings).toEqual([]);
  });
});
