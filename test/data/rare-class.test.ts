import { expect, it } from 'vitest';
import { choosesThreshold, hasRareClass, selectionOf, weighsClasses } from '../../src/data/rare-class.js';

const rare = { positive: 76, negative: 24 };
const even = { positive: 75, negative: 25 };

it('a class is rare below a quarter, if it is there at all', () => {
  expect(hasRareClass(rare)).toBe(true);
  expect(hasRareClass({ positive: 24, negative: 76 })).toBe(true);
  expect(hasRareClass(even)).toBe(false);
  expect(hasRareClass({ positive: 100, negative: 0 })).toBe(false);
});

it('auto goes by it, and what is said wins', () => {
  expect([weighsClasses('auto', rare), weighsClasses('auto', even)]).toEqual([true, false]);
  expect([weighsClasses('none', rare), weighsClasses('balanced', even)]).toEqual([false, true]);
  expect([selectionOf('auto', rare), selectionOf('auto', even)]).toEqual(['auc', 'f1_macro']);
  expect([selectionOf('f1_macro', rare), selectionOf('best_f1_macro', even)]).toEqual([
    'f1_macro',
    'best_f1_macro',
  ]);
  expect([choosesThreshold('auto', rare), choosesThreshold('auto', even)]).toEqual([true, false]);
  expect([choosesThreshold('greedy', rare), choosesThreshold(0.3, rare)]).toEqual([false, false]);
  expect(choosesThreshold('validation', even)).toBe(true);
});
