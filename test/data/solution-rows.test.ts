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

  it('has one where the others are empty, or the same text, or a list of steps names it', () => {
    expect(solutionsOf({ ...gold, text: gold.solution, output: '', code: null })).toHaveLength(1);
    expect(solutionsOf({ ...gold, steps: ['1', '2'] })).toMatchObject([{ steps: ['1', '2'] }]);
  });
});
