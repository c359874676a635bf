// Texts are cut into steps outside mathematics alone.
import { readFileSync } from 'node:fs';
import { gunzipSync } from 'node:zlib';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { solutionSteps } from '../../src/corrections/solution.js';
import { threadClock } from '../../src/native/processor-time.js';
import { endsInMathematics, mathematics } from '../../src/records/mathematics.js';
import { stepPieces, stepsOf } from '../../src/records/steps.js';
import { sharedPath } from '../shared.js';

/** Whether every sign that opens mathematics is closed, counted without regard to order. */
function isBalanced(text: string): boolean {
  const plain = text.replace(/\\\\/g, '').replace(/\\[{}$]/g, '');
  const count = (sign: RegExp) => (plain.match(sign) ?? []).length;
  const pairs = [
    [/\\\[/g, /\\\]/g],
    [/\\\(/g, /\\\)/g],
    [/\\begin\{/g, /\\end\{/g],
    [/\{/g, /\}/g],
  ] as const;
  return count(/\$/g) % 2 === 0 && pairs.every(([open, close]) => count(open) === count(close));
}

/** As texts are cut that have no mathematics. */
function cut(text: string): string[] {
  const trimmed = text.trim();
  const parts = /\n\s*\n/.test(trimmed) ? trimmed.split(/\n\s*\n/) : trimmed.split('\n');
  return parts.map((part) => part.trim()).filter((part) => part !== '');
}

it.each([
  ['\\[\na\n\n= b\n\\]\nso', ['\\[\na\n\n= b\n\\]', 'so']],
  ['First $a\n= b$.\nThen c.', ['First $a\n= b$.', 'Then c.']],
  ['$$\na\n$$\nb', ['$$\na\n$$', 'b']],
  [
    '\\begin{align*}\na\\\\[2pt]\n\nb\n\\end{align*}\nc\n\nd',
    ['\\begin{align*}\na\\\\[2pt]\n\nb\n\\end{align*}\nc', 'd'],
  ],
  ['\\boxed{\n5\n}\nend', ['\\boxed{\n5\n}', 'end']],
  ['$a$$b$\nc\n$d$', ['$a$$b$', 'c', '$d$']],
  // Prices, and signs that nothing closes.
  ['She pays $5 for this\nand $10 for that.', ['She pays $5 for this', 'and $10 for that.']],
  [
    'It is 2 * 9 = $18 a day\nso 7 * 18 = $126 in all',
    ['It is 2 * 9 = $18 a day', 'so 7 * 18 = $126 in all'],
  ],
  ['It is $5\n+ $7\n= $12', ['It is $5', '+ $7', '= $12']],
  ['\\[ a\nb { c\nd', ['\\[ a', 'b { c', 'd']],
  ['a } b\n\\) c', ['a } b', '\\) c']],
  ['one $a\n\ntwo$ b', ['one $a', 'two$ b']],
  ['costs \\$5\nand \\$6', ['costs \\$5', 'and \\$6']],
])('%j is cut into %j', (text, steps) => {
  expect(stepsOf(text)).toEqual(steps);
});

it.each([
  ['\\[ x', true],
  ['\\begin{align*} x &= \\text{a}', true],
  ['so $$', true],
  ['so $x', true],
  ['\\frac{1}{', true],
  ['so $x$ and \\[ y \\]', false],
  ['costs $5', false],
  ['\\{1, 2', false],
  ['as \\] says', false],
])('%j ends inside a formula: %s', (text, is) => {
  expect(endsInMathematics(text)).toBe(is);
});

it('a step of a solution is one line, formulas and all', () => {
  expect(
    solutionSteps(
      'We have\n\\begin{align*}\nx &= 1\n\\\\ y &= 2.\n\\end{align*} So $x\n= 1$. Then it ends.\n#### 3',
    ),
  ).toEqual([
    'We have',
    '\\begin{align*} x &= 1 \\\\ y &= 2. \\end{align*} So $x = 1$. Then it ends.',
    'The answer is: 3',
  ]);
  expect(solutionSteps('We get $f(x) = 1. X = 2$. So it is.\nThe answer is: 2')).toEqual([
    'We get $f(x) = 1. X = 2$.',
    'So it is.',
    'The answer is: 2',
  ]);
});

const PIECES = [
  'So we get',
  'x',
  '5',
  '\n',
  '\n',
  '\n\n',
  ' \n ',
  '. Then',
  '= 7',
  '&',
  '\\\\',
  '\\$3',
  '\\{',
];
const text = (pieces: readonly string[]) =>
  fc.array(fc.constantFrom(...pieces), { maxLength: 25 }).map((parts) => parts.join(' '));
const formula = fc
  .tuple(
    fc.constantFrom(
      ['\\[', '\\]'],
      ['$$', '$$'],
      ['\\(', '\\)'],
      ['\\begin{align*}', '\\end{align*}'],
      ['\\boxed{', '}'],
      ['$', '$'],
    ),
    text(['x', '5', '\n', '= 7', '&', '\\\\', '\\frac{1}{\n2}', '\\text{so we have}', '\\}']),
  )
  .map(([[open, close], inside]) =>
    // Within a line of text no formula has a blank line.
    open === '$' ? `$${inside.replace(/\s*\n\s*/g, '\n')}$` : `${open}${inside}${close}`,
  );

describe('a property', () => {
  it('of texts with closed formulas: no step has an open one, and all of the text is in steps', () => {
    const parts = fc.array(fc.oneof(formula, text(PIECES)), { maxLength: 12 });
    fc.assert(
      fc.property(parts, (list) => {
        const whole = list.join(' ');
        const steps = stepsOf(whole);
        for (const step of [...steps, ...solutionSteps(whole)]) expect(isBalanced(step)).toBe(true);
        expect(steps.join('').replace(/\s/g, '')).toBe(whole.replace(/\s/g, ''));
        expect(stepPieces(whole).map((piece) => piece.trim())).toEqual(steps);
      }),
      { numRuns: 2000, seed: 1 },
    );
  });

  it('of texts without formulas: they are cut at blank lines, or at lines', () => {
    fc.assert(
      fc.property(text([...PIECES, '$5 of them', '(', ']', '%']), (whole) => {
        expect(stepsOf(whole)).toEqual(cut(whole));
      }),
      { numRuns: 2000, seed: 2 },
    );
  });
});

it.each([
  '$',
  '$$',
  '\\[',
  '\\[ \\]',
  '{',
  '}',
  '{}',
  '\\begin{a}',
  '\\begin{a}\n\\end{a}',
  '$\n',
  '\n',
  ' \n',
  '\\',
  '$a\n$',
  '{\n',
])('200 kB of %j take no longer than in proportion', (piece) => {
  const taken = (size: number) => {
    const long = piece.repeat(size / piece.length);
    const start = threadClock();
    stepsOf(long);
    solutionSteps(long);
    mathematics(long);
    return threadClock() - start;
  };
  taken(2_000);
  // Quadratic work would take minutes.
  expect(taken(200_000)).toBeLessThan(10_000);
});

const train = sharedPath('data/math/train.jsonl.gz');
it.skipIf(train === undefined)(
  'no step of the training part of MATH has an open formula that its solution closes',
  () => {
    const solutions = gunzipSync(readFileSync(train!))
      .toString()
      .trimEnd()
      .split('\n')
      .map((line) => String(JSON.parse(line).solution));
    const balanced = solutions.filter(isBalanced);
    expect([solutions.length, balanced.length]).toEqual([7500, 7498]);
    for (const split of [stepsOf, solutionSteps])
      expect(balanced.flatMap((solution) => split(solution)).filter((step) => !isBalanced(step))).toEqual([]);
    // What is cut apart from formulas shows the test: lines alone leave thousands open.
    expect(balanced.flatMap(cut).filter((step) => !isBalanced(step)).length).toBeGreaterThan(2000);
  },
);
