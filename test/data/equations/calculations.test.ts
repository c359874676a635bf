// The calculations of a step in the notations that docs/how-to/own-data.md names.
import { describe, expect, it } from 'vitest';
import { calculationsIn } from '../../../src/data/equations/calculations.js';
import { threadClock } from '../../../src/native/processor-time.js';

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
    // Two signs, and powers of what has one.
    ['10 / -2 = -5', '10 / -2 = 5'],
    ['5 - -3 = 8', '5 - -3 = 2'],
    ['-2^2 = -4', '-2^2 = 4'],
    ['(-2)^2 = 4', '(-2)^2 = -4'],
    ['2^{3+1} = 16', '2^{3+1} = 9'],
    ['6 × 10⁵ = 600000', '6 × 10⁵ = 60000'],
    ['5 × 10⁻² = 0.05', '5 × 10⁻² = 500'],
    ['12 ÷ \\frac{3}{4} = 16', '12 ÷ \\frac{3}{4} = 1'],
    ['1{,}200 + 300 = 1{,}500', '1{,}200 + 300 = 1{,}600'],
    ['\\left(2 + 3\\right) \\cdot 4 = 20', '\\left(2 + 3\\right) \\cdot 4 = 21'],
    ['12+7=19,5+3=8', '12+7=18,5+3=8'],
    ['12+7=19,5+3=8', '12+7=19,5+3=9'],
    ['2*4,75=9,5*2=19', '2*4,75=9,5*2=18'],
    // English numbers have no European reading.
    ['1,500 + 1 = 1,501', '1,500 + 1 = 2,500'],
    ['1,250 * 4 = 5,000', '1,250 * 4 = 5'],
    // Sums that another is written for; `5 * 2 = 10 + 3` goes on from 10.
    ['2 * 3 + 4 = 6 + 4 = 10', '2 * 3 + 4 = 7 + 4 = 11'],
    ['12/16 = 3/4 = 0.75', '12/16 = 4/5 = 0.8'],
    ['(5+3) * 2 = 8 * 2 = 16', '(5+3) * 2 = 9 * 2 = 18'],
    ['240 - (40 + 84) = 240 students - 124 students = 116', '240 - (40 + 84) = 240 - 134 = 106'],
    ['100/3 * 3 = 33.33 * 3 = 99.99', '100/3 * 3 = 35.33 * 3 = 105.99'],
    ['5 * 2 = 10 + 3 = 13', '5 * 2 = 11 + 3 = 14'],
    // One unit, and percents of one kind.
    ['150 g × 12 = 1,800 g', '150 g × 12 = 1,700 g'],
    ['20 min + 30 min = 50 min', '20 min + 30 min = 60 min'],
    ['5 hours * 3 = 15 hours', '5 hours * 3 = 16 hours'],
    ['$5 * 3 = $15', '$5 * 3 = $16'],
    ['100% - 15% = 85%', '100% - 15% = 80%'],
    ['12 times/day * 3 days = 36', '12 times/day * 3 days = 38'],
    ['4 hours * 60 minutes/hour = 240 minutes', '4 hours * 60 minutes/hour = 250 minutes'],
    ['10 in + 5 in = 15 in', '10 in + 5 in = 16 in'],
    ['10in x 5 in = 50', '10in x 5 in = 60'],
    ['12" + 12" = 24"', '12" + 12" = 25"'],
    ['4 + 4 = 8 in total', '4 + 4 = 96 in total'],
    ['60 - 6 = 54 walnuts remain', '60 - 6 = 45 walnuts remain'],
    // What stands around a calculation and is no part of it.
    ['1) (3 + 4) * 2 = 14', '1) (3 + 4) * 2 = 15'],
    ['| 12 + 7 = 19 |', '| 12 + 7 = 18 |'],
    ['[ 12 + 7 = 19 ]', '[ 12 + 7 = 18 ]'],
    ['⇒ 12 + 7 = 19', '⇒ 12 + 7 = 18'],
    ['_12 + 7 = 19_', '_12 + 7 = 18_'],
    ['\\textbf{12 + 7} = 19', '\\textbf{12 + 7 = 18}'],
    ['12 + 7 = 19(apples)', '12 + 7 = 18(apples)'],
    ['Then: - 12 + 7 = 19', 'Then: - 12 + 7 = 18'],
    ['12 + 7\n= 19', '12 + 7\n= 18'],
    ['Monday — 12 + 7 = 19', 'Monday: 12 + 7 = 18'],
    ['12 + 7 = 19 — that was easy', '12 + 7 = 18 — that was easy'],
    ['12 + 7 = 19-pound bags', '12 + 7 = 18-pound bags'],
    ['3 + 4 = 7, total - 3', '3 + 4 = 8, total - 3'],
    ['The average of 56 / 4 = 14', '56 / 4 = 13 on average'],
    ['$5 / period * 5 periods = $25', '$5 / period * 5 periods = $26'],
    // Terms that are turned into the unit of the others, and hours of a day.
    ['2 hours * 60 + 30 minutes = 150 minutes', '2 ft + 10 ft = 13 ft'],
    ['3 million + 2 million = 5 million', '3 million + 2 million = 6 million'],
    ['8 hours * 5 days = 40', '8 hours * 5 = 41 hours'],
    ['80 * (1 - 15%) = 68', '80 * (1 - 0.15) = 65'],
    ['25 mg/oz * 8 oz = 200 mg', '25 mg/oz * 8 oz = 300 mg'],
    ['$0.25/quarter * 4 quarters = $1', '10/3 = 3.33 and 10/4 = 4'],
    ['Boxes: 3\n* 12 + 7 = 19', 'Boxes: 3\n* 12 + 7 = 18'],
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
    // Roots, bars, functions, letters, and other brackets.
    'sqrt(9 + 16) = 5',
    '√(3² + 4²) = 5',
    '√16 + 2 = 18',
    '\\sqrt{16} + 2 = 6',
    '|3 - 5| = 2',
    '⌊7/4⌋ = 1',
    'floor(7 / 4) = 1',
    'f(3) + 2 = 5',
    '3 + f(2) = 7',
    'log 100 + 3 = 5',
    '2θ + 3 = 9',
    'π × 5² = 78.54',
    '5² × 2 = 50π',
    '3½ + 2 = 5.5',
    '1/2 - a^{-1} = 1',
    '49 - 3ab = 6',
    '5! / 3 + 2 = 42',
    '(2 + 3)(4 + 1) = 25',
    '[2 + 3] * 4 = 20',
    '(20)/(-8) = (-5)/(2)',
    // Remainders, and operations in words.
    '31 / 4 = 7 remainder 3',
    '29 / 4 = 7 remainder 3',
    '7 / 4 = 1 R 3',
    '50 / 3 = 16 stickers, with 2 remaining',
    '17/3 = 5 and 2/3 loads',
    '5 + 4 = 2 (mod 7)',
    '10 mod 3 + 1 = 2',
    '2 times 3 + 4 = 10',
    '20 minus (2 + 3) = 15',
    'twice 3 + 4 = 10',
    '4 squared + 9 = 25',
    '4 choose 2 + 1 = 7',
    '2 to the power of 3 + 1 = 9',
    '5 more than 3 * 2 = 11',
    '12 - - 3 = 15',
    // Operands in words, also where the numbers alone would come out.
    'total + 3 + 4 = 10',
    'total + 3 + 4 = 7',
    'total + $3 + $4 = $7',
    'total + (3 + 4) = 7',
    'Total cost: price × 3 + 4 = 7',
    'price x 3 + 4 = 7',
    'total / 3 + 4 = 7',
    '7 = total + 3 + 4',
    '3 + total + 4 = 7',
    '3 + 4 + total = 7',
    '3 + 4 = 7 + total',
    '12 - eaten - 3 = 9',
    '12 - eaten - 3 = 8',
    '12 + 7 - eaten = 19',
    'pi * 8^2 * 3 = 192 pi',
    'total - 3 + 4 = 7',
    'total – 3 + 4 = 7',
    'total - 3 + 4 = 10',
    '3 + total -4 = -1',
    '3+4-total=7',
    '24 / 2 / total = 12',
    'twice 3 + 4 = 7',
    '5 more than 3 * 2 = 6',
    '1 and 1/4 + 2 = 2.25',
    '3 + 4ab = 7',
    // And behind the result.
    '3 + 4 = 9 - total',
    '3 + 4 = 7 - total',
    '3 + 4 = 9 -total',
    '3+4=9-total',
    '3 + 4 = 9 - $total',
    '3 + 4 = 9 apples - eaten',
    '3 + 4 = 7 apples + eaten',
    '3 + 4 = 7 / total',
    '3 + 4 = 14 / n',
    '3 + 4 = 7 / n',
    '3 + 4 = 7n',
    '17/3 = 6 and 2/3',
    // Blanks.
    '□ - 3 + 4 = 7',
    '3 + ? -4 = -1',
    '3 + 4□ = 7',
    '3 + 4 = 9 - ?',
    '3 + 4 = 9 - _',
    // Several units, and percents that are put on or taken off.
    '1 kg - 350 g = 650 g',
    '650 g = 1 kg - 350 g',
    '2 m - 50 cm = 150 cm',
    '2 ft + 10 in = 34 in',
    '24 in + 1 ft = 36 in',
    '2 ft + 10 in = 12',
    '12 = 2 ft + 10 in',
    '2 ft + 10 in = 12 in',
    '2 yd + 3 ft - 1 in = 4',
    '2 ft × 3 in = 6',
    '3 h 20 min + 10 min = 33',
    '3 h 20 min + 10 min = 30',
    '20 min + 30 min = 50 hours',
    '60 x 2 feet = 120 inches',
    '1.125 miles/minute * 4 minutes + 1 km = 5.5 hours',
    '1 hour + 30 minutes = 31 minutes',
    '$5 + 50 cents = 55',
    '2 dozen + 3 = 5',
    '80 - 15% = 79.85',
    `5' + 10" = 70"`,
    '5 kg + 200 g = 5.2 kg',
    '$5 + 50 cents = $5.50',
    '5 € + 50 cents = 5.50 €',
    '75 cents * 4 = $3',
    '50¢ × 4 = $2',
    '30 + 30 = 1 hour',
    '45 minutes * $20/hour = $15',
    '1000000 * 3 = 3 million',
    '80 - 15% = 68',
    '80 + 25 % = 100',
    '10% + 5 = 5.5',
    '2 dozen + 3 = 27',
    '1st - 5 = 6th',
    '2 cups / 1/4 cup = 8',
    // Nested more deeply than anybody does.
    `${'('.repeat(51)}1 + 1${')'.repeat(51)} = 2`,
  ])('%s is read as none', (step) => expect(verdictOf(step)).toBe('unchecked'));

  it('passes over numbers that nobody writes, at no cost', () => {
    const digits = '1'.repeat(20_000);
    const started = threadClock();
    expect(verdictOf(`${digits} + 1 = 2`)).toBe('unchecked');
    expect(verdictOf('9^99^99 = 1')).toBe('unchecked');
    calculationsIn(`1 = ${'2 = '.repeat(5000)}3`);
    calculationsIn(`${'1.000.'.repeat(5000)}000 + 1 = 2`);
    expect(threadClock() - started).toBeLessThan(60_000);
  });

  it('says nothing of steps that are longer than anybody writes', () => {
    const chain = (length: number) => '1 + 1 = 2 = 2 '.padEnd(length, '= 2 ');
    expect(calculationsIn(chain(4000)).length).toBeGreaterThan(900);
    expect(calculationsIn(chain(4001))).toEqual([]);
    for (const piece of ['1 + 1 = 2 = 2 ', '(', '1 + (', '2^', '{']) {
      const started = threadClock();
      expect(calculationsIn(piece.repeat(32_000))).toEqual([]);
      expect(threadClock() - started).toBeLessThan(1000);
    }
    expect(() => calculationsIn(`${'('.repeat(3990)}1+1=2`)).not.toThrow();
  });

  it('takes no time over signs of percent', () => {
    const started = threadClock();
    calculationsIn(`5%${'.%'.repeat(60)} + 3 = 8`);
    expect(threadClock() - started).toBeLessThan(5000);
  });
});

it.each(['1000 * 1.00416666666667^84 = 1418.04', '9.123456789^90*1/7 = 2%'])(
  'says nothing of what is too large to compute: %s',
  (step) => {
    expect(calculationsIn(step)).toEqual([]);
  },
);
