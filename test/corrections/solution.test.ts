import { expect, it } from 'vitest';
import {
  lastNumber,
  normalisedStep,
  solutionSteps,
  sourceSolution,
  stepResult,
} from '../../src/corrections/solution.js';

it.each([
  ['lines', 'a = 1\nb = 2\nThe answer is: 2', ['a = 1', 'b = 2', 'The answer is: 2']],
  [
    'GSM8K, with its notes for calculators',
    'She has 48/2 = <<48/2=24>>24 clips.\nTogether 24+48 = <<24+48=72>>72.\n#### 72',
    ['She has 48/2 = 24 clips.', 'Together 24+48 = 72.', 'The answer is: 72'],
  ],
  [
    'MetaMathQA, which says its answer twice',
    'First 1.5 + 2 = 3.5.\nSo 3.5.\n#### 3.5\nThe answer is: 3.5',
    ['First 1.5 + 2 = 3.5.', 'So 3.5.', 'The answer is: 3.5'],
  ],
  [
    'sentences where there is one line',
    'We have 1.5 + 2 = 3.5. Then $x = 7$. So it is 7.\nThe answer is: 7',
    ['We have 1.5 + 2 = 3.5.', 'Then $x = 7$.', 'So it is 7.', 'The answer is: 7'],
  ],
] as const)('splits %s', (_, text, steps) => {
  expect(solutionSteps(text)).toEqual(steps);
});

it('says why a record has no solution to use', () => {
  const record = { problem: 'p', steps: [] };
  expect(sourceSolution(record, 0)).toBe('no_answer');
  expect(sourceSolution({ ...record, gold_answer: '1' }, 0)).toBe('no_solution');
  expect(sourceSolution({ ...record, gold_answer: '1', outcome: 0 }, 0)).toBe('wrong_solution');
  const whole = { ...record, gold_answer: '1', gold_solution: 'a\nThe answer is: 1' };
  expect(sourceSolution(whole, 3)).toMatchObject({ number: 3, steps: ['a', 'The answer is: 1'] });
});

it('compares steps and results', () => {
  expect(normalisedStep('So  x = 5 .')).toBe(normalisedStep('so x=5'));
  expect(normalisedStep('x = 10²')).not.toBe(normalisedStep('x = 102'));
  expect(lastNumber('1,200 and 3.50')).toBe('3.5');
  expect(lastNumber('in all 1,234,567')).toBe('1234567');
  expect(lastNumber('none')).toBeUndefined();
});

it('the number of a step itself is no result', () => {
  expect(stepResult('2: Ann')).toBeUndefined();
  expect(stepResult('Step 2. 5 + 4 = 9')).toBe('9');
  expect(stepResult('3) Tom has 12.')).toBe('12');
  expect(stepResult('3.5 + 4 = 7.5')).toBe('7.5');
  expect(stepResult('12')).toBe('12');
});
