import { describe, expect, it } from 'vitest';
import { StatisticsCounter } from '../../src/data/statistics.js';
import type { StepLabel } from '../../src/records/record.js';

describe('StatisticsCounter', () => {
  it('counts solutions, problems, labels, and steps per solution', () => {
    const counter = new StatisticsCounter();
    const solutions: [number, StepLabel[]][] = [
      [1, [1, 0]],
      [1, [1, null, 1, 1]],
      [2, [1, 0, null]],
    ];
    for (const [problem, labels] of solutions) counter.add({ problem, labels });
    expect(counter.result()).toEqual({
      solutions: 3,
      problems: 2,
      samples: 7,
      positive: 5,
      negative: 2,
      unlabelled: 2,
      stepsPerSolution: { min: 2, mean: 3, max: 4 },
    });
  });

  it('does not count context steps again', () => {
    const counter = new StatisticsCounter();
    counter.add({ problem: 1, labels: [1, 1] });
    counter.add({ problem: 1, labels: [null, 0], context_steps: 1 });
    expect(counter.result()).toMatchObject({
      samples: 3,
      unlabelled: 0,
      stepsPerSolution: { min: 2, mean: 2, max: 2 },
    });
  });

  it('gives quantiles of the lengths and the counts of truncated steps', () => {
    const counter = new StatisticsCounter();
    for (let tokens = 100; tokens >= 1; tokens--) {
      counter.add({ problem: tokens, labels: [1, 1], tokens, stepsCut: tokens > 98 ? 2 : 0 });
    }
    expect(counter.result().lengths).toEqual({
      tokens: 5050,
      median: 50,
      p95: 95,
      max: 100,
      stepsCut: 4,
      solutionsCut: 2,
    });
  });

  it('gives zeros without data', () => {
    const { stepsPerSolution, lengths } = new StatisticsCounter().result();
    expect(stepsPerSolution).toEqual({ min: 0, mean: 0, max: 0 });
    expect(lengths).toBeUndefined();
  });
});
