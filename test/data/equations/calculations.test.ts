// The calculations of a step in the notations that docs/how-to/own-data.md names.
import { describe, expect, it } from 'vitest';
import { calculationsIn } from '../../../src/data/equations/calculations.js';

const verdictOf = (step: string) => {
  const found = calculationsIn(step);
  return found.length === 0 ? 'unchecked' : found.every(({ holds }) => holds) ? 'right' : 'wrong';
};

describe('calculations of a step', () => {
  it.each([
    // Results below 0, and numbers with a sign.
    ['3 - 5 = -2', '3 - 5 = 2'],
    ['3 − 5 = −2', '3 − 5 = −3'],
    ['$3 - $5 = -$2', '$3 - $5 = $2'],
    ['-3 + 5 = 2', '-3 + 5 = 8'],
    ['4 * -2 = -8', '4 * -2 = 8'],
    ['- 12 + 7 = 19', '- 12 + 7 = 18'],
    ['So it is (-2): 3 - 5 = (-2)', '3 - 5 = (-3)'],
    // Chains.
    ['12 + 7 = 19 = 19', '12 + 7 = 19 = 20'],
    ['12 + 7 = 19 apples = 19 apples', '12 + 7 = 19 apples = 20 apples'],
    ['100 / 3 = 33.33 = 33.3', '100 / 3 = 33.33 = 34'],
    ['1/4 = 0.25 = 25%', '1/4 = 0.25 = 20%'],
    ['2 * 30 = 60 minutes = 1 hour', '2 * 30 = 60 minutes = 62 minutes'],
    ['3 * 12 = 36 = 3 * 12 = 36', '12 + 7 = 18 = 18'],
    // Percents and parts of something.
    ['25 % of 80 = 20', '25 % of 80 = 21'],
    ['25% of $80 = $20', '25% of $80 = $25'],
    ['25 percent of 80 = 20', '25 percent of 80 = 21'],
    ['1/4 of 80 = 20', '1/4 of 80 = 21'],
    ['100% - 80% = 20', '100% - 80% = 30'],
    ['1/3 = 33%', '1/3 = 40%'],
    // Rounded to the digits that are printed.
    ['100 / 3 = 33', '100 / 3 = 34'],
    ['100 / 3 = 33.3', '100 / 3 = 33.4'],
    ['100 / 3 = 33.33', '100 / 3 = 33.34'],
    ['5 / 2 = 3', '5 / 2 = 4'],
    ['5 / 2 = 2', '7 / 4 = 1'],
    ['2 / 3 = 0.66...', '2 / 3 = 0.66'],
    ['2 / 3 = 0.67', '12 + 7 = 19.4'],
    // A colon that divides, and powers.
    ['12:4 = 3', '10:3 = 4'],
    ['12 : 4 = 3', '12 : 4 = 4'],
    ['2^3 = 8', '2^3 = 9'],
    ['2**3 = 8', '2**3 = 9'],
    ['5² = 25', '5² = 10'],
    ['2^{10} = 1024', '2^{10} = 1000'],
    ['3 + 2 * 5^2 = 53', '3 + 2 * 5^2 = 103'],
    ['12 cm² + 7 cm² = 19 cm²', '12 cm² + 7 cm² = 20 cm²'],
    // The result first.
    ['19 = 12 + 7', '18 = 12 + 7'],
    ['So 19 = 12 + 7', 'So 18 = 12 + 7'],
    ['19 = 12 + 7 = 19', '18 = 12 + 7 = 19'],
    // Large numbers in groups, and points and commas as in Europe.
    ['1,200 + 300 = 1,500', '1,200 + 300 = 1,600'],
    ['1.200 + 300 = 1.500', '1.200 + 300 = 1.600'],
    ['1.200,50 + 0,50 = 1.201', '1.200,50 + 0,50 = 1.202'],
    ['1,5 * 2 = 3', '1,5 * 2 = 4'],
    ['1.250 * 4 = 5', '1.250 * 4 = 6'],
    ['700 + 800 = 1 500', '700 + 800 = 1 600'],
    ["1'200 + 300 = 1'500", "1'200 + 300 = 1'600"],
    ['**12 + 7 = 19**', '**12 + 7 = 18**'],
    ['Week 1:600 / 2 = 300', 'Week 1:600 / 2 = 301'],
    ['Step 1: 12 + 7 = 19', 'Step 1: 12 + 7 = 18'],
  ])('%s is right, %s is wrong', (right, wrong) => {
    expect([verdictOf(right), verdictOf(wrong)]).toEqual(['right', 'wrong']);
  });

  it.each([
    'There are 19 apples left.',
    '12 plus 7 makes 18',
    'x + 2 = 6',
    'a² = 9',
    'Day 1 = 12 + 7',
    '4 hours = 4 * 60',
    '1 - (1)/(4) = (4)/(5)',
    'Ratio 2:3 = 4:5',
    '12 + 7 >= 15',
    '12 + 7 ≠ 18',
    '12 + 7 ≈ 20',
    'At 10:30 + 2 = 12',
    '9:15 + 45 = 10:00',
    '8 x 1 1/2 = 13 rolls',
    '2(3 + 4) = 15',
    '-(3 + 5) = -9',
    '10 * 3 = 15 * 3',
    '24 - (4 + 8) = 24 eggs - 12 eggs',
    '10:3 + 1 = 5',
    '4^0.5 = 3',
    '17 % 5 = 2',
    '1 foot = 12 inches',
    '1.2.3 + 4 = 5',
    '5 / 0 = 5',
  ])('%s is read as none', (step) => expect(verdictOf(step)).toBe('unchecked'));

  it('passes over numbers that nobody writes, at no cost', () => {
    const digits = '1'.repeat(20_000);
    const started = performance.now();
    expect(verdictOf(`${digits} + 1 = 2`)).toBe('unchecked');
    expect(verdictOf('9^99^99 = 1')).toBe('unchecked');
    calculationsIn(`1 = ${'2 = '.repeat(5000)}3`);
    calculationsIn(`${'1.000.'.repeat(5000)}000 + 1 = 2`);
    expect(performance.now() - started).toBeLessThan(60_000);
  });
});

it.each(['1000 * 1.00416666666667^84 = 1418.04', '9.123456789^90*1/7 = 2%'])(
  'says nothing of what is too large to compute: %s',
  (step) => {
    expect(calculationsIn(step)).toEqual([]);
  },
);
