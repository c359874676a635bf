// Hostile answers: arbitrary text, deep nesting, numbers too large to compute, 100 kB of one character.
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { answersEqual } from '../../src/answers/equal.js';
import { extractAnswer } from '../../src/answers/extract.js';
import { normalise } from '../../src/answers/normalise.js';

const PIECES =
  '\\frac \\sqrt \\boxed { } ( ) [ ] \\{ \\} | ^ _ + - * / = < \\le \\pm , ; : . ! % $ & \\\\ \\cup \\in \\text{cm} \\sin ' +
  '\\log \\pi \\infty i e x y f( 0 1 2 10 1,000 0.5 1e9 \\begin{pmatrix} \\end{pmatrix} and or \\degree \\sum \\binom ' +
  '\\overline{3} \\$ 5% apples \\mathbb{R} \\setminus \\left \\right answer is #### \\( \\) ½ √ ² π −';
const latex = fc
  .array(fc.constantFrom(...PIECES.split(' '), ' '), { maxLength: 40 })
  .map((parts) => parts.join(''));
const expression = fc.letrec<{ tree: string; leaf: string }>((tie) => ({
  leaf: fc.oneof(
    fc.integer({ min: -50, max: 50 }).map(String),
    fc.constantFrom('x', 'y', '\\pi', 'i', '\\sqrt{2}', '0.5'),
  ),
  tree: fc.oneof(
    { depthSize: 'small' },
    tie('leaf'),
    fc
      .tuple(tie('tree'), fc.constantFrom('+', '-', '\\cdot '), tie('tree'))
      .map(([a, op, b]) => `(${a}${op}${b})`),
    fc.tuple(tie('tree'), tie('tree')).map(([a, b]) => `\\frac{${a}}{${b}}`),
    tie('tree').map((a) => `\\sqrt{${a}}`),
    tie('tree').map((a) => `{(${a})}^{2}`),
    tie('tree').map((a) => `\\sin(${a})`),
  ),
})).tree;

describe('any text', () => {
  it('is compared without an exception, with the same result in both orders', () => {
    fc.assert(
      fc.property(fc.oneof(latex, fc.string({ unit: 'binary' })), fc.oneof(latex, expression), (a, b) => {
        const { equal, method } = answersEqual(a, b);
        expect(answersEqual(b, a).equal).toBe(equal);
        expect(equal && method === 'budget').toBe(false);
      }),
      { numRuns: 1500, seed: 1 },
    );
  });

  it('equals itself', () => {
    fc.assert(
      fc.property(fc.oneof(latex, fc.string({ unit: 'grapheme' })), (text) => {
        fc.pre(normalise(text) !== '');
        expect(answersEqual(text, text).equal).toBe(true);
        expect(answersEqual(` ${text} `, text).equal).toBe(true);
      }),
      { numRuns: 3000, seed: 2 },
    );
  });

  it('contains the answer that is extracted from it, if any', () => {
    fc.assert(
      fc.property(fc.array(fc.oneof(latex, fc.string()), { maxLength: 5 }), (parts) => {
        const found = extractAnswer(parts.join('\n'));
        if (found !== undefined) expect(found.answer.trim()).not.toBe('');
      }),
      { numRuns: 1500, seed: 3 },
    );
  });
});

describe('an expression', () => {
  it('equals itself with more brackets, and does not equal itself plus one', () => {
    fc.assert(
      fc.property(expression, (text) => {
        const { equal, method } = answersEqual(`0+(${text})`, text);
        // A division by zero has no value, so only the text counts.
        const isDefined = answersEqual(`(${text})+1-1`, text).equal;
        if (isDefined && method !== 'budget') expect(equal).toBe(true);
        expect(answersEqual(`(${text})+1`, text).equal).toBe(false);
      }),
      { numRuns: 1000, seed: 4 },
    );
  });
});

const repeat = (text: string, size = 100_000) => text.repeat(Math.ceil(size / text.length));

describe('an answer that is expensive to compare', () => {
  it.each(
    (
      '( { [ \\{ | \\frac{ \\frac \\sqrt{ \\sqrt - + \\pm 1+ 1/ x^ 9^ 9^{ ! 5! % ^ _ \\ \\\\ \\text{ \\boxed{ \\boxed{1} ' +
      '$ $1$ \\( \\[ answer: #### A 1 9 1, 1,111, . .1. 1e9 \\begin{matrix} 1& \\sin sin( f( |x| x xy \\le 1< x=1, (1,2), ' +
      '\\textcolor{ \\textcolor{red} ` \\dot{1} \\over 1\\over 5\\choose \\begin{vmatrix} \\infty+ 0.(3) \\text{,} 5= 答案 答案是 \\vec ' +
      '[0,1]\\cup 1: <think> </think> ° ½ √ 中 ~ \\! {,} ** 5cm (x+1) \\sum_{ \\lfloor \\overline{'
    ).split(' '),
  )('100 kB of %s are processed', (piece) => {
    for (const text of [repeat(piece), `1${repeat(piece)}`, `${repeat(piece)}1`]) {
      const { equal } = answersEqual(text, '1');
      // A character without meaning, such as white space or a font command, leaves the 1.
      if (equal) expect(piece).toMatch(/^(?:`|\\textcolor\{red\}|\\vec|\\\\?|\\!|~|\*\*|\$|\\\(|\\\[)$/);
      extractAnswer(text);
    }
  });

  it.each([
    '\n',
    ' ',
    '\t',
    '\u3000',
    'and ',
    'word ',
    '\\pm 1 ',
    'x^2 + ',
    'The answer is ',
    '1 or ',
    '1 000 ',
    '111 ',
    '1 million ',
    '14 (7*2) ',
    'The answer is 14, which is ',
    'The answer is 1 ( ',
    '\\boxed{1} and ',
  ])('100 kB of %j are processed', (piece) => {
    expect(answersEqual(`${repeat(piece)}2`, '1').equal).toBe(false);
    extractAnswer(repeat(piece));
  });

  it.each([
    ['9^{9^{9^{9}}}', '9^{9^{9^{8}}}'],
    ['9^9^9^9', '1'],
    ['(9^9^9)!', '1'],
    ['1e999999', '1e999998'],
    ['1e9999999999', '1'],
    [`0.${'3'.repeat(100_000)}`, '1/3'],
    [`${'7'.repeat(4000)}/${'3'.repeat(4001)}`, '1'],
    [`\\sqrt{${'7'.repeat(4000)}}\\sqrt{${'3'.repeat(3999)}1}`, '2'],
    ['(x+y+z+w)^{60}', '(x+y+z+w)^{59}'],
    ['((((x+1)^{60}+1)^{60}+1)^{60}+1)^{60}', 'x'],
    ['x^{999999999}', 'x^{999999998}'],
    ['(x^{999999999})^{999999999}', 'x'],
    ['(500!)^{500!}', '1'],
    ['(\\sqrt2+\\sqrt3+\\sqrt5+\\sqrt7+\\sqrt{11})^{64}', '1'],
    [
      Array.from({ length: 3000 }, (_, i) => i).join(', '),
      Array.from({ length: 3000 }, (_, i) => i + 1).join(', '),
    ],
    [`${'\\frac{1}{x+'.repeat(40)}y${'}'.repeat(40)}`, `${'\\frac{1}{y+'.repeat(40)}x${'}'.repeat(40)}`],
  ])('%.40s is not %.20s', (a, b) => {
    expect(answersEqual(a, b).equal).toBe(false);
  });

  it('runs out of steps at the same place every time, and says so', () => {
    const [a, b] = ['(x+y)^{40}', '(y+x)^{40}'];
    let needed = 1;
    while (answersEqual(a, b, { steps: needed }).method === 'budget') needed *= 2;
    expect(answersEqual(a, b, { steps: needed })).toEqual({ equal: true, method: 'exact' });
    expect(answersEqual(a, b, { steps: needed / 2 })).toEqual({ equal: false, method: 'budget' });
  });
});
