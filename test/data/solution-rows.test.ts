// Solutions in rows of any layout.
import { describe, expect, it } from 'vitest';
import { isCutOff, solutionsOf, solutionText } from '../../src/data/solution-rows.js';

describe('a finish_reason', () => {
  it.each([
    ...['stop', 'STOP', 'eos', 'eos_token', 'end_turn', 'stop_sequence', 'tool_calls', 'COMPLETE', '', null],
    ...[undefined, { type: 'stop', matched: 2 }],
  ])('%j is an end', (reason) => {
    expect(isCutOff({ finish_reason: reason })).toBe(false);
  });

  it.each(['length', 'MAX_TOKENS', 'abort', 'error', 'too_long', 'content_filter', { type: 'length' }])(
    '%j is a cut',
    (reason) => {
      expect(isCutOff({ finish_reason: reason })).toBe(true);
    },
  );

  it.each(['done', 3, {}])('%j is refused', (reason) => {
    expect(() => isCutOff({ finish_reason: reason })).toThrow("column 'finish_reason' is");
  });
});

describe('steps with labels', () => {
  const row = (label: unknown, outcome?: unknown) => ({
    ...{ problem: 'One?', steps: [{ text: '1', label }] },
    ...(outcome === undefined ? {} : { outcome }),
  });

  it('have the marks that records have', () => {
    expect(solutionsOf(row(true, false))).toMatchObject([{ labels: [1], outcome: 0 }]);
    expect(solutionsOf(row('0', 1))).toMatchObject([{ labels: [0], outcome: 1 }]);
    expect(solutionsOf(row(null))).toMatchObject([{ labels: [null] }]);
    expect(() => solutionsOf(row(-1))).toThrow("'label' of step 1 is the number -1");
  });
});

describe('a row with a gold solution and a sampled one', () => {
  const gold = { problem: 'Two and two?', solution: 'So \\boxed{4}.', answer: '4' };

  it.each(['text', 'response', 'generation', 'output'])('needs its name: %s', (name) => {
    const row = { ...gold, [name]: 'It is 5.' };
    expect(() => solutionsOf(row)).toThrow(
      `columns 'solution' and '${name}' may both be the solution, a gold one and a sampled one, say; --solution ${name} names it`,
    );
    expect(() => solutionText(row)).toThrow('may both be the solution');
    expect(solutionsOf(row, { solution: name })).toMatchObject([{ steps: ['It is 5.'] }]);
    expect(solutionsOf(row, { solution: 'solution' })).toMatchObject([{ steps: ['So \\boxed{4}.'] }]);
  });

  it('needs its name beside a list of steps too, unless the text is made of them or ends them', () => {
    const steps = { problem: 'Two and two?', steps: ['2 + 2 = 4', 'Answer: 4'] };
    expect(() => solutionsOf({ ...steps, completions: ['2 + 2 = 5', 'Answer: 5'] })).toThrow(
      "columns 'steps' and 'completions' may both be the solution",
    );
    expect(() => solutionsOf({ ...steps, response: 'It is 5.' })).toThrow(
      "columns 'steps' and 'response' may both be the solution",
    );
    for (const beside of [
      { completions: steps.steps },
      { response: '<think>2 + 2 = 4</think> Answer: 4' },
      { prediction: '4' },
      { solution: 'Count: 1, 2, 3, 4.' },
    ])
      expect(solutionsOf({ ...steps, ...beside })).toMatchObject([{ steps: steps.steps }]);
  });

  it('has one where the others are empty, or the same text, or a list of steps names it', () => {
    expect(solutionsOf({ ...gold, text: gold.solution, output: '', code: null })).toHaveLength(1);
    expect(solutionsOf({ ...gold, steps: ['1', '2'] })).toMatchObject([{ steps: ['1', '2'] }]);
  });
});
