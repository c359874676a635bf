import { expect, it } from 'vitest';
import { correctionFault } from '../../src/corrections/filters.js';
import { resultOf, sameResult } from '../../src/corrections/result.js';

it.each([
  ['x = \\frac{1}{2}', 'x = \\frac{2}{4}'],
  ['So $x = \\frac{1}{2}$.', 'x = 0.5'],
  ['Thus x = \\frac{1}{2}.', '2: so \\frac12'],
  ['3^2', '9'],
  ['$3^2 + 4^2 = 25$', 'They are 9 + 16 = 25.'],
  ['4y + 3', '3 + 4y'],
  ['So we get 4y + 3 in the end', '$y + 3y + 3$'],
  ['$2x + 3 = 7$', '2x = 4'],
  ['Tom has 12 + 7 = 19 apples.', '2: 7 + 12 = 19'],
  ['He buys a 19', '12 + 7 = 19'],
  ['3 x 4 = 12', '3 * 4 = 12'],
  ['The answer is: 72', 'so \\boxed{72}'],
  ['$x=3$.', 'x is 3'],
  ['So $x = 2$ or $x = 3$.', 'x = 3 or x = 2'],
  ['2*3=6 and 6+1=7', '7'],
  ['12 + 7 = 19', '19 = 12 + 7'],
  ['Tom has 12 + 7 = 19 apples on day 2.', '12 + 7 = 19 on day 2'],
  ['Answer: Tom', 'The answer is Tom.'],
  ['Answer: 9books', 'Answer: 9'],
  ['Ann  stands before Tom.', 'ann stands before Tom'],
  ['2: Tom has 5 apples and Ann has 3', 'So Tom has 5 and Ann 3.'],
  ['He has 5 dollars and 3 cents', 'Five and three: 5 dollars, 3 cents'],
])('%s comes to the same as %s', (a, b) => {
  expect(sameResult(a, b)).toBe(true);
  expect(sameResult(b, a)).toBe(true);
});

it.each([
  ['x = \\frac{1}{2}', 'x = \\frac{3}{2}'],
  ['So $x = \\frac{1}{2}$.', 'So $x = \\frac{3}{2}$.'],
  ['3^2', '5^2'],
  ['so we take 3^2.', 'so we take 5^2.'],
  ['4y + 3', '9y + 3'],
  ['(1, 2)', '(3, 2)'],
  ['so it is 1/2 of them', 'so it is 3/2 of them'],
  ['We have 12 + 7', 'We have 11 + 7'],
  ['$2x + 3 = 7$', '$5x = 7$'],
  ['12 + 7 = 19', '12 + 7 = 18'],
  ['It is −3', 'It is 3'],
  ['x = 3', 'y = 3'],
  ['$x_1 = 3$', '$x_2 = 3$'],
  ['So x = 2 or x = 3', 'So x = 1 or x = 3'],
  ['So $a=2$ and $b=3$.', 'So $a=5$ and $b=3$.'],
  ['3/4 of 20', '1/4 of 20'],
  ['$\\frac{1}{2}$ of $20$', '$\\frac{1}{4}$ of $20$'],
  ['10 = 1 mod 9', '11 = 2 mod 9'],
  ['It is 1.5 million', 'It is 1.5 billion'],
  ['He has 5 dollars', 'He has 5 cents'],
  ['Tom has 12 + 7 = 19 apples on day 2.', 'Tom has 12 + 7 = 18 apples on day 2.'],
  ['Answer: Tom', 'Answer: Ann'],
  ['free: 58 - 32 =  people32', 'free: 58 - 32 = 26'],
  ['packs: 7 × 14 = 98 pens: 8 + 98', 'packs: 7 × 14 = 98'],
  ['Ann stands before Tom.', 'Tom stands before Ann.'],
  ['Ann stands before Tom.', '12 + 7 = 19'],
  // Words with several numbers: nothing says which is the result.
  ['Tom has 5 apples and Ann has 3', 'Tom has 6 apples and Ann has 3'],
  ['Tom has 5 apples and Ann has 3', 'Tom has 3 apples and Ann has 5'],
  ['He has 5 dollars and 3 cents', 'He has 5 cents and 3 cents'],
  ['On day 2 Tom has 19 apples', 'On day 3 Tom has 19 apples'],
  ['Tom has 12 and gets 7, so 19', '12 + 7 = 19'],
])('%s does not come to the same as %s', (a, b) => {
  expect(sameResult(a, b)).toBe(false);
  expect(sameResult(b, a)).toBe(false);
});

it('a step of words has no result', () => {
  expect(resultOf('2: Ann')).toBeUndefined();
  expect(resultOf('We divide both sides by the number of people.')).toBeUndefined();
});

it('a reflection may name the answer that the right step has among its numbers', () => {
  const right = 'Tom has 12 and gets 7, so he has 19';
  const correction = { reflection: '12 and 7 are 19, not 18.', improvement: right };
  expect(correctionFault({ answer: '19', right, isLast: false }, correction)).toBeUndefined();
});

it('an improvement with another numerator, base or factor is rejected', () => {
  const place = { answer: '7', isLast: false };
  const fault = (right: string, improvement: string) =>
    correctionFault({ ...place, right }, { reflection: 'The factor is wrong.', improvement });
  expect(fault('x = \\frac{1}{2}', 'x = \\frac{3}{2}')).toBe('other_result');
  expect(fault('3^2', '5^2')).toBe('other_result');
  expect(fault('4y + 3', '9y + 3')).toBe('other_result');
  expect(fault('x = \\frac{1}{2}', 'x = 0.5')).toBeUndefined();
});

it('a reflection tells an answer of several numbers only with all of them', () => {
  const place = { answer: '\\frac{1}{2}', right: '2x = 1', isLast: false };
  const fault = (reflection: string) => correctionFault(place, { reflection, improvement: '2x = 1' });
  expect(fault('The factor is 2, not 3.')).toBeUndefined();
  expect(fault('In the end x is $\\frac{2}{4}$.')).toBe('tells_answer');
  expect(fault('It must be \\frac{1}{2}.')).toBe('tells_answer');
});
