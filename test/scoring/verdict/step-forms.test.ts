import { expect, it } from 'vitest';
import type { StepRecord } from '../../../src/records/record.js';
import { foreignSteps, formsOf } from '../../../src/scoring/verdict/step-forms.js';

const solution = (...steps: readonly (readonly [text: string, label: 0 | 1])[]): StepRecord => ({
  problem: '',
  steps: steps.map(([text, label]) => ({ text, label, kind: 'normal' })),
});
const LINES = [
  solution(['Tom: 12 + 7 = 18', 0], ['Answer: 18', 0]),
  solution(['Ann: 3 + 4 = 7', 1], ['red apples: 7 + 5 = 12', 1], ['Answer: 12', 1]),
];

it('keeps a step of each form, a right one where there is one, commonest first', () => {
  expect(formsOf(LINES)).toEqual(['Ann: 3 + 4 = 7', 'Answer: 12']);
  expect(formsOf([solution(['12+7=18', 0])])).toEqual(['12+7=18']);
});

it('keeps none of free text, of which no form is foreign', () => {
  const texts = Array.from({ length: 30 }, (_, i) => solution([`so${' 1'.repeat(i)} it is`, 1]));
  expect(formsOf(texts.slice(0, 24))).toHaveLength(24);
  expect(formsOf(texts)).toBeUndefined();
});

it('knows steps of those forms, whatever their words and numbers', () => {
  const forms = formsOf(LINES) as string[];
  expect(foreignSteps(['the tall boy: 1 + 999 = 1000', 'Result: 5', ' Zoë: 1 + 1 = 2 '], forms)).toEqual([]);
  expect(foreignSteps(['12 + 7 = 19', 'Tom: 12+7=19', 'Tom: 12 - 7 = 5', 'Tom has 19.'], forms)).toEqual([
    0, 1, 2, 3,
  ]);
});
