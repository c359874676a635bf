// Steps of chains of thought by their rule, with their places in the text.
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { type Segmentation, segmentSteps } from '../../src/records/segment.js';

const short = (text: string) => segmentSteps(text).map(({ part, text: own }) => [part[0], own]);

describe('segmentSteps', () => {
  it.each([
    [
      '<think>\nFirst.\n\nWait, no.\n</think>\n\nIt is 5.\n\nDone.',
      [
        ['t', 'First.'],
        ['t', 'Wait, no.'],
        ['a', 'It is 5.'],
        ['a', 'Done.'],
      ],
    ],
    // After a template that ends with the opening tag; cut off in the thought; without one; with words before it.
    [
      'First.\n\nSecond.</think>5',
      [
        ['t', 'First.'],
        ['t', 'Second.'],
        ['a', '5'],
      ],
    ],
    [
      '<think>First.\n\nSec',
      [
        ['t', 'First.'],
        ['t', 'Sec'],
      ],
    ],
    [
      'First.\nstill.\n\nSecond.',
      [
        ['a', 'First.\nstill.'],
        ['a', 'Second.'],
      ],
    ],
    [
      'Hm. <think>a</think> </think> b',
      [
        ['a', 'Hm.'],
        ['t', 'a'],
        ['a', '</think> b'],
      ],
    ],
    ['<think></think>', []],
    ['', []],
    // A formula, code, and what goes on with a sentence belong to the paragraph before.
    [
      'So:\n\n$$x = 5$$\n\nwhich is it.\n\nNext.',
      [
        ['a', 'So:\n\n$$x = 5$$\n\nwhich is it.'],
        ['a', 'Next.'],
      ],
    ],
    [
      'Take\n\n$$a\n\n= b$$\n\nNow.',
      [
        ['a', 'Take\n\n$$a\n\n= b$$'],
        ['a', 'Now.'],
      ],
    ],
    [
      'Code.\n\n```py\nx = 1\n\ny = 2\n```\n\nNow.',
      [
        ['a', 'Code.\n\n```py\nx = 1\n\ny = 2\n```'],
        ['a', 'Now.'],
      ],
    ],
    [
      'One.\n\n```\nunclosed\n\nTwo.',
      [
        ['a', 'One.\n\n```\nunclosed'],
        ['a', 'Two.'],
      ],
    ],
    [
      'We have:\n\nThis.\n\nThat.',
      [
        ['a', 'We have:\n\nThis.'],
        ['a', 'That.'],
      ],
    ],
    [
      'One.\r\n\r\nTwo.\n \t\n  \nThree.',
      [
        ['a', 'One.'],
        ['a', 'Two.'],
        ['a', 'Three.'],
      ],
    ],
  ] as const)('%j', (text, steps) => {
    expect(short(text)).toEqual(steps);
  });

  it('loses no text: places are in order, and between them stand white space and tags alone', () => {
    const piece = fc.constantFrom(
      '<think>',
      '</think>',
      '\n\n',
      '\n',
      ' ',
      'A',
      'b.',
      '$',
      '$$',
      '\\[',
      '\\]',
      '```',
      '{',
      '}',
      ':',
      'é🙂',
    );
    fc.assert(
      fc.property(fc.array(piece, { maxLength: 40 }), (pieces) => {
        const text = pieces.join('');
        const steps = segmentSteps(text);
        let at = 0;
        let between = '';
        for (const { start, end, text: own } of steps) {
          expect(start).toBeGreaterThanOrEqual(at);
          expect(own).toBe(text.slice(start, end));
          expect(own).toBe(own.trim());
          between += text.slice(at, start);
          at = end;
        }
        between += text.slice(at);
        expect(between.replace('<think>', '').replace('</think>', '').trim()).toBe('');
      }),
    );
  });

  it('refuses a rule that it does not know', () => {
    expect(() => segmentSteps('a', 'thoughts/9' as Segmentation)).toThrow(
      'segmentSteps: expected a rule of thoughts/1, found thoughts/9',
    );
  });
});
