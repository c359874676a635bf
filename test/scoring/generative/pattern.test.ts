// Verdicts read from texts that models write.
import { describe, expect, it } from 'vitest';
import { readVerdicts } from '../../../src/scoring/generative/pattern.js';

const boxed = { verdict: '\\boxed{{verdict}}', words: ['correct', 'incorrect'] } as const;
const numbered = { step: 'Step {step}:', verdict: 'is {verdict}.', words: ['right', 'wrong'] } as const;

describe('verdicts in a text', () => {
  it.each([
    ['Step 1: 2 + 3 is 5. \\boxed{correct}\nStep 2: no. \\boxed{incorrect}', [1, 0, null]],
    ['Fine: \\boxed{\\text{correct}}, then $\\boxed{correct}$ and \\boxed{correct}.', [1, 1, 1]],
    // Numbers in boxes and halves of a box say nothing.
    ['\\boxed{7} \\boxed{Correct} \\boxed{correct \\boxed{incorrect}', [1, 0, null]],
    // Other words keep the place of a verdict.
    ['\\boxed{correct} \\boxed{not sure} \\boxed{incorrect}', [1, null, 0]],
    ['\\boxed{correct} \\boxed{n + 1} \\boxed{x} \\boxed{incorrect}', [1, 0, null]],
    // Four verdicts on three steps: nothing says which is whose.
    ['\\boxed{correct}'.repeat(4), [null, null, null]],
    ['', [null, null, null]],
  ])('come in the order of the steps: %s', (text, found) => {
    expect(readVerdicts(text, 3, boxed)).toEqual(found);
  });

  it.each([
    ['Step 2: it is wrong.\nStep 1: it is right.', [1, 0, null]],
    // Thought better of it; and a part without a verdict takes none from the next.
    ['Step 1: it is right. Wait, it is wrong.\nStep 2: hm.\nStep 3: it is right.', [0, null, 1]],
    ['Step 1: is right.\nStep 1: is wrong.', [0, null, null]],
    // A step that is not there is none of those before it.
    ['Step 1: is right.\nStep 4: is wrong.', [1, null, null]],
    ['Step 1: it is Right.\nStep 2: it is WRONG. It is fine.', [1, 0, null]],
    [
      'It is right. Step 4: is right. Step 0: is right. Step 12345678: is right. Step x: is wrong.',
      [null, null, null],
    ],
  ])('belong to the part of their step: %s', (text, found) => {
    expect(readVerdicts(text, 3, numbered)).toEqual(found);
  });

  it.each([
    ['Step 1: it is right.\n**Step 2:** by Step 1: x = 2, it is wrong.', [1, 0, null]],
    ['## Step 1: it is right.\n- Step 2: by Step 1: x = 2, it is wrong.\nStep 3: is right.', [1, 0, 1]],
    // All in one line.
    ['Step 1: it is right. Step 2: it is wrong. Step 3: it is right.', [1, 0, 1]],
    // A line for the first alone.
    ['Step 1: it is right. And Step 2: it is wrong.', [1, 0, null]],
  ])('do not belong to a step that another one names, where parts begin lines: %s', (text, found) => {
    expect(readVerdicts(text, 3, numbered)).toEqual(found);
  });

  it('are whole words, also where nothing closes them', () => {
    const open = { verdict: 'Verdict: {verdict}', words: ['correct', 'incorrect'] } as const;
    const text =
      'Verdict: correctness is not shown. Verdict: incorrect. Verdict: correct_1. Verdict: correct';
    expect(readVerdicts(text, 3, open)).toEqual([0, 1, null]);
  });

  it('are read in a time that grows with the text', () => {
    const long = `${'Step 1: '.repeat(200_000)}${'\\boxed{'.repeat(200_000)}is right.`;
    expect(readVerdicts(long, 3, numbered)).toEqual([1, null, null]);
  });
});
