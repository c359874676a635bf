import { describe, expect, it } from 'vitest';
import { correctionTexts, correctionWriter } from '../../../src/data/corrections/layout.js';
import type { Step, StepKind } from '../../../src/records/record.js';

const step = (text: string, kind: StepKind = 'normal'): Step => ({ text, kind, label: null });
const STEPS = [
  step('Step 1: 2+3=5'),
  step('Step 2: 5+4=8', 'wrong'),
  step('5+4 is not 8.', 'reflection'),
  step('Step 2: 5+4=9', 'improvement'),
  step('The answer is 9'),
];
const weights = (mask: Parameters<typeof correctionTexts>[2]) =>
  correctionTexts({ steps: STEPS }, {}, mask).map(({ text, weight }) => [text, weight]);

const BEFORE = 'Step 1: 2+3=5\n';
const WRONG = 'Step 2: 5+4=8\n';
const AFTER = [
  ['Wait, the last step is not right: 5+4 is not 8.\n', 1],
  ['Corrected: Step 2: 5+4=9\n', 1],
  ['The answer is 9\n', 1],
];

describe('what is learned', () => {
  it.each([
    ['all but the wrong step and its separator', {}, [[BEFORE, 1], [WRONG, 0], ...AFTER]],
    ['everything', { mask: 'none' }, [[BEFORE, 1], [WRONG, 1], ...AFTER]],
    ['from the reflection on', { mask: 'wrong_step_and_prompt' }, [[BEFORE, 0], [WRONG, 0], ...AFTER]],
    ['the wrong step a little', { wrong_step_weight: 0.25 }, [[BEFORE, 1], [WRONG, 0.25], ...AFTER]],
    [
      'the separator after the wrong step',
      { mask_separator: false },
      [[BEFORE, 1], ['Step 2: 5+4=8', 0], ['\n', 1], ...AFTER],
    ],
    [
      'the header that the right step has too',
      { header: 'Step \\d+: ?' },
      [[BEFORE, 1], ['Step 2: ', 1], ['5+4=8\n', 0], ...AFTER],
    ],
  ] as const)('%s', (_, mask, expected) => {
    expect(weights(mask)).toEqual(expected);
  });

  it('is everything of a solution without a wrong step', () => {
    const clean = { steps: [step('a'), step('b')] };
    const texts = correctionTexts(clean, {}, { mask: 'wrong_step_and_prompt' });
    expect(texts.map(({ text, weight }) => [text, weight])).toEqual([
      ['a\n', 1],
      ['b\n', 1],
    ]);
  });
});

describe('the text of a solution', () => {
  const format = { separator: '\n\n', reflection: '<r>{text}</r>', improvement: '<i>{text}</i>' };

  it('is written as the format says, and read back with the kind of each step', () => {
    for (const each of [{}, format]) {
      const whole = correctionTexts({ steps: STEPS }, each)
        .map(({ text }) => text)
        .join('');
      const read = correctionWriter(each).read(whole);
      expect(read).toEqual(STEPS.map(({ text, kind }) => ({ text, kind })));
    }
  });

  it('is not cut inside a formula', () => {
    const steps = [
      step('We have \\begin{align*}\nx &= 2 \\\\\n\ny &= 4\n\\end{align*}', 'wrong'),
      step('$y$ is $$\n3\n$$', 'reflection'),
      step('so \\[\ny = 3\n\\]', 'improvement'),
      step('Together $x\n+ y = 5$.'),
      step('The answer is 5'),
    ];
    // The default separator, one of two line breaks, and one whose signs have a meaning in expressions.
    for (const each of [{}, format, { separator: '\n(.*)\n' }]) {
      const whole = correctionTexts({ steps }, each)
        .map(({ text }) => text)
        .join('');
      expect(correctionWriter(each).read(whole)).toEqual(steps.map(({ text, kind }) => ({ text, kind })));
    }
  });

  it('without a reflection is read by the words of the improvement', () => {
    const steps = STEPS.filter(({ kind }) => kind !== 'reflection');
    const whole = correctionTexts({ steps })
      .map(({ text }) => text)
      .join('');
    expect(correctionWriter().read(whole)).toEqual(steps.map(({ text, kind }) => ({ text, kind })));
  });

  it('that begins with a reflection has nothing to correct', () => {
    const text = 'Wait, the last step is not right: no\n1+1=2';
    expect(
      correctionWriter()
        .read(text)
        .map(({ kind }) => kind),
    ).toEqual(['normal', 'normal']);
  });

  it.each([
    [{ reflection: 'Wait' }, /format.reflection must have {text} exactly once; found "Wait"/],
    [{ improvement: '{text}{text}' }, /format.improvement must have {text} exactly once/],
    [
      { reflection: '{text}' },
      /format.reflection is "{text}" alone; a correction is recognised by the words around it/,
    ],
    [{ separator: '' }, /format.separator is empty/],
  ])('refuses the format %j', (wrong, sentence) => {
    expect(() => correctionWriter(wrong)).toThrow(sentence);
  });

  it('refuses a header that is no regular expression', () => {
    expect(() => correctionTexts({ steps: STEPS }, {}, { header: '(' })).toThrow(
      /s3c.header is no regular expression/,
    );
  });
});
