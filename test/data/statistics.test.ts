import { describe, expect, it } from 'vitest';
import type { Step, StepRecord } from '../../src/data/record.js';
import { StatisticsCounter } from '../../src/data/statistics.js';

const steps = (...labels: Step['label'][]): Step[] =>
  labels.map((label) => ({ text: 's', label, kind: 'normal' }));

describe('StatisticsCounter', () => {
  it('counts solutions, problems, labels, and steps per solution', () => {
    const counter = new StatisticsCounter();
    const records: StepRecord[] = [
      { problem: 'P', steps: steps(1, 0) },
      { problem: ' p ', steps: steps(1, null, 1, 1) },
      { problem: 'Q', steps: steps(1, 0, null) },
    ];
    for (const record of records) counter.add(record);
    expect(counter.result()).toEqual({
      records: 3,
      problems: 2,
      samples: 7,
      positive: 5,
      negative: 2,
      unlabelled: 2,
      stepsPerSolution: { min: 2, mean: 3, max: 4 },
    });
  });

  it('does not count steps again that only lead up to another', () => {
    const counter = new StatisticsCounter();
    counter.add({ problem: 'P', steps: steps(1, 1) });
    counter.add({ problem: 'P', steps: steps(null, 0), context_steps: 1 });
    expect(counter.result()).toMatchObject({
      samples: 3,
      unlabelled: 0,
      stepsPerSolution: { min: 2, mean: 2, max: 2 },
    });
  });

  it('has zeros for nothing', () => {
    expect(new StatisticsCounter().result().stepsPerSolution).toEqual({ min: 0, mean: 0, max: 0 });
  });
});
