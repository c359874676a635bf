// Explicit calculations in many wordings.
import { describe, expect, it } from 'vitest';
import { evaluate, written } from '../../../src/data/calculations/numbers.js';
import { calculationRecords } from '../../../src/data/calculations/records.js';
import { NAMES, NOISE, THINGS, VERBS } from '../../../src/data/calculations/words.js';

const texts = (samples: number, seed = 0) =>
  [...calculationRecords({ seed, samples })].map(({ problem, steps }) => ({
    problem,
    steps: steps.map(({ text, label }) => {
      expect(label).toBe(1);
      return text;
    }),
  }));

/** `12 + 7 = 19`, `$1,200 * 2 = $2,400`, `(4 - 1) × 2 = 6`, without words between the numbers. */
const EQUATION =
  /(\(?\$?[\d.,]+\)?(?: ?(?:[-−+×*÷/:·x]|\\times|\\div) ?\(?\$?[\d.,]+\)?)+) ?= ?\$?([\d,]*\d(?:\.\d+)?)/g;

/** Without its number, and with plain dollars. */
const plain = (step: string) => step.replace(/^(Step )?\d+[:.] /, '').replaceAll('\\$', '$');

function computed(left: string): number {
  const plain = left
    .replaceAll(/[$, ]/g, '')
    .replaceAll('−', '-')
    .replaceAll(/×|·|x|\\times/g, '*')
    .replaceAll(/÷|:|\\div/g, '/');
  if (!/^[\d.()+*/-]+$/.test(plain)) throw new Error(plain);
  return Function(`return ${plain}`)() as number;
}

describe('calculations', () => {
  it('are right, in every form that is written with signs', () => {
    let count = 0;
    const wrong: string[] = [];
    for (const { steps } of texts(2000))
      for (const step of steps)
        for (const [equation, left = '', right = ''] of plain(step).matchAll(EQUATION)) {
          count++;
          if (Math.abs(computed(left) - Number(right.replaceAll(',', ''))) > 1e-6) wrong.push(equation);
        }
    expect(wrong).toEqual([]);
    expect(count).toBeGreaterThan(4000);
  });

  it('are the same for the same seed, whatever their number, and others for another', () => {
    const five = texts(5);
    expect(texts(9).slice(0, 5)).toEqual(five);
    expect(texts(5, 1)).not.toEqual(five);
  });

  it('are told in many forms and words, and in none of those that its measures use', () => {
    const all = texts(3000);
    const forms = new Set(all.flatMap(({ steps }) => steps.map((step) => step.replaceAll(/[\d.,]+/g, '#'))));
    expect(forms.size).toBeGreaterThan(3000);
    const words = new Set([...NAMES, ...THINGS, ...VERBS, ...NOISE]);
    expect(words.size).toBeGreaterThan(500);
    for (const held of ['Paul', 'Yuki', 'passengers', 'bus', 'flour', 'recipe', 'bags', 'bookshop'])
      expect(words.has(held), held).toBe(false);
  });

  it('have numbers that the problem tells, or an earlier step, or that everybody knows', () => {
    const known = new Set(['2', '3', '4', '5', '7', '10', '12', '24', '30', '52', '60', '100']);
    let [told, untold] = [0, 0];
    for (const { problem, steps } of texts(500)) {
      const before = new Set(problem.match(/\d+(\.\d+)?/g));
      for (const step of steps) {
        const [first] = step.match(/\d+(\.\d+)?/g) ?? [];
        if (first !== undefined && (before.has(first) || known.has(first))) told++;
        else untold++;
        for (const number of step.match(/\d+(\.\d+)?/g) ?? []) before.add(number);
      }
    }
    expect(told / (told + untold)).toBeGreaterThan(0.6);
  });

  it('refuse options that are no whole numbers', () => {
    expect(() => [...calculationRecords({ seed: 0, samples: 1, steps: 0 })]).toThrow(
      /data.calculations.steps is 0/,
    );
    expect(() => [...calculationRecords({ seed: 0, samples: 1.5 })]).toThrow(/samples is 1.5/);
  });
});

describe('numbers', () => {
  it('are exact in hundredths, with the precedence of signs and of brackets', () => {
    const calculate = (terms: number[], ops: ('+' | '-' | '×' | '÷')[], bracket = false) =>
      evaluate({ terms: terms.map((term) => term * 100), ops, bracket });
    expect(calculate([2, 3, 4], ['+', '×'])).toBe(1400);
    expect(calculate([2, 3, 4], ['+', '×'], true)).toBe(2000);
    expect(calculate([9, 2], ['÷'])).toBe(450);
    // Thirds, negative results and divisions by zero are none.
    expect(calculate([1, 3], ['÷'])).toBeUndefined();
    expect(calculate([1, 3], ['-'])).toBeUndefined();
    expect(calculate([1, 0], ['÷'])).toBeUndefined();
  });

  it('are written as people write them', () => {
    expect([1200, 1250, 1205].map((value) => written(value))).toEqual(['12', '12.5', '12.05']);
    expect(written(123_450, { money: true, commas: true })).toBe('1,234.50');
  });
});
