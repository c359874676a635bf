// Classification models whose names say that the first of two classes is right.
import { describe, expect, it } from 'vitest';
import { areReversed } from '../../src/data/class-names.js';
import { settingsOf } from '../../src/scoring/kinds.js';

const settings = (kind: 'sequence' | 'token', labels: readonly string[] | undefined) => {
  const head = { kind, numLabels: 2, labels, bias: true, dropout: 0 };
  const config = { head, source: {}, maxPositions: 64, modelType: 'qwen2' };
  return settingsOf({ decoder: { config } as never, files: undefined }, {});
};

describe.each(['sequence', 'token'] as const)('a %s classifier', (kind) => {
  it.each([
    { labels: undefined },
    { labels: ['LABEL_0', 'LABEL_1'] },
    { labels: ['incorrect', 'correct'] },
    { labels: ['-', '+'] },
    { labels: ['0', '1'] },
    { labels: ['a', 'b'] },
  ])('of the classes $labels scores', ({ labels }) => {
    expect(settings(kind, labels)).toBeDefined();
  });

  it.each([
    ['correct', 'incorrect'],
    ['+', '-'],
    ['YES', 'NO'],
    ['1', '0'],
    ['x', 'wrong'],
  ])('of the classes %s and %s is refused', (...labels) => {
    expect(() => settings(kind, labels)).toThrow(
      `config.json names class 0 "${labels[0]}" and class 1 "${labels[1]}", and class 1 is read as right`,
    );
  });
});

it('three classes have an order of their own', () => {
  expect(areReversed(['right', 'wrong', 'neutral'])).toBe(false);
});
