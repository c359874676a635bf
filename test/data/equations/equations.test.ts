import { describe, expect, it } from 'vitest';
import { toNumber } from '../../../src/answers/rational.js';
import { equationsIn, plainSigns } from '../../../src/data/equations/equations.js';
import { exactValue, numbersIn, partsOf } from '../../../src/data/equations/expression.js';

const found = (line: string) =>
  equationsIn(line).equations.map(({ expression, result, holds }) => [
    expression,
    toNumber(result.value),
    holds,
  ]);

describe('equations of a line', () => {
  it.each([
    ['$12 \\times 7 = 84$', true],
    ['\\[ \\frac{84}{7} = 13 \\]', false],
    ['\\$12 + \\$7 = \\$19', true],
    ['6 * €6 = €12', false],
    ['₹50 + ₹20 = ₹70', true],
    ['2 · 4 £ = 9 £', false],
  ])('%s, in signs of TeX and of money', (line, holds) => {
    expect(found(plainSigns(line)).map(([, , own]) => own)).toEqual([holds]);
  });

  it.each([
    ['She has 16 - 3 - 4 = <<16-3-4=9>>9 eggs.', [['16 - 3 - 4', 9, true]]],
    ['She has 16 - 3 - 4 = 9 eggs.', [['16 - 3 - 4', 9, true]]],
    ['It costs $5 x 3 = $<<5*3=15>>15.', [['5 x 3', 15, true]]],
    [
      '7 stickers/page * 6 pages = 42, and 3 + 42 = 45',
      [
        ['7 stickers/page * 6 pages', 42, true],
        ['3 + 42', 45, true],
      ],
    ],
    ['(2 + 3) * 4 = 20', [['(2 + 3) * 4', 20, true]]],
    ['50 * 20% = 10', [['50 * 20%', 10, true]]],
    [
      '10/3 = 3.33 and 10/4 = 2',
      [
        ['10/3', 3.33, true],
        ['10/4', 2, true],
      ],
    ],
    ['100% - 80% = 20% are children', [['100% - 80%', 0.2, true]]],
    ['1,148 x 10 = 11,480', [['1,148 x 10', 11480, true]]],
    ['They have <<5*3=15>>15 apples.', [['5*3', 15, true]]],
    ['In 2 years he is 3 + 4 = 8', [['3 + 4', 8, false]]],
    ['Flour: 150 g × 12 = 1,800 g', [['150 g × 12', 1800, true]]],
    ['So Yuki has $76 - $20.75 = $56.25 left', [['76 - $20.75', 56.25, false]]],
  ])('%s', (line, expected) => expect(found(line)).toEqual(expected));

  it.each([
    'x + 2 = 5',
    '2S + 4S = 6',
    'W + W + 2 = 30',
    '8 x 1 1/2 = 12 rolls',
    'because 14 = 14',
    'a 12-pound bag = 3',
    '10 * 3 = 15 * 2',
  ])('passes over %s', (line) => expect(found(line)).toEqual([]));

  it('knows the text without notes, and where an expression stands in it', () => {
    const { text, equations } = equationsIn('So 2 + 3 = <<2+3=5>>5, and 5 * 4 = $<<5*4=20>>20.');
    expect(text).toBe('So 2 + 3 = 5, and 5 * 4 = $20.');
    for (const { at = -1, expression, result } of equations) {
      expect(text.slice(at, at + expression.length)).toBe(expression);
      expect(text.slice(result.at, result.end)).toMatch(/^(?:5|20)$/);
    }
  });
});

describe('exact values', () => {
  it.each([
    ['2 + 3 * 4', 14],
    ['10 - 4 - 3', 3],
    ['24 / 4 / 2', 3],
    ['0.1 + 0.2', 0.3],
    ['3 * 1/3', 1],
  ])('%s', (text, value) => expect(toNumber(exactValue(partsOf(text)) as never)).toBe(value));

  it.each(['2 +', '5 / 0', '(2 + 3', '2 3'])('none of %s', (text) =>
    expect(exactValue(partsOf(text))).toBeUndefined(),
  );

  it('passes over numbers that nobody writes, at no cost', () => {
    expect(numbersIn(`7 and 0.${'1'.repeat(5000)}`).map(({ value }) => toNumber(value))).toEqual([7]);
  });
});
