// The oracle: right steps in any order, wrong ones by what is wrong with them, and the answer.
import { describe, expect, it } from 'vitest';
import { wordProblems } from '../../../src/data/problems/generate.js';
import {
  errorName,
  isRightAnswer,
  judgeSolution,
  judgeText,
  type StepError,
} from '../../../src/data/problems/oracle.js';
import type { WordProblem } from '../../../src/data/problems/problem.js';
import {
  drawManner,
  MISTAKES,
  type MistakeOptions,
  rightSolution,
  writtenSolution,
} from '../../../src/data/problems/solution.js';
import { PhiloxStream } from '../../../src/random/philox.js';

/** Ann 12, Bob 7 more than Ann, Eva 3 times as many as Bob; Eva and Ann together. */
const problem: Pick<WordProblem, 'plan' | 'ending' | 'answer'> = {
  plan: [
    { about: 'Bob', left: { value: 12 }, op: '+', right: { value: 7 }, result: 19 },
    { about: 'Eva', left: { value: 19, step: 0 }, op: '×', right: { value: 3 }, result: 57 },
    { about: 'together', left: { value: 57, step: 1 }, op: '+', right: { value: 12 }, result: 69 },
  ],
  ending: { kind: 'number', step: 2 },
  answer: '69',
};

/** With mistakes where the numbers allow them. */
const drawnSolution = (made: WordProblem, draw: PhiloxStream, options: MistakeOptions): string[] =>
  writtenSolution(made, drawManner(draw, options, 8)) ?? rightSolution(made);

const errorsOf = (...lines: string[]): (StepError | 'right')[] =>
  judgeSolution(problem, lines).lines.map(({ error }) => error ?? 'right');

describe('judgeSolution', () => {
  it('takes right steps in any order and spelling', () => {
    expect(errorsOf('Bob: 12 + 7 = 19', 'Eva: 19 × 3 = 57', 'together: 57 + 12 = 69', 'Answer: 69')).toEqual(
      Array(4).fill('right'),
    );
    expect(errorsOf('together: 12 + 57 = 69', '3*19=57', 'Bob: 7+12 = 19.', 'answer: 69')).toEqual(
      Array(4).fill('right'),
    );
    const { missing, isAnswerRight } = judgeSolution(problem, ['Eva: 19 × 3 = 57', 'Answer: 69']);
    expect([missing, isAnswerRight]).toEqual([[0, 2], true]);
  });

  it.each<[string, string[], (StepError | 'right')[]]>([
    [
      'a slip, and what is carried on from it',
      ['Bob: 12 + 7 = 18', 'Eva: 18 × 3 = 54', 'together: 54 + 12 = 66', 'Answer: 66'],
      ['slip', 'carried', 'carried', 'carried'],
    ],
    ['a second slip in what is carried on', ['Bob: 12 + 7 = 18', 'Eva: 18 × 3 = 55'], ['slip', 'slip']],
    ['another operation', ['Bob: 12 - 7 = 5', 'Eva: 5 × 3 = 15'], ['operation', 'carried']],
    [
      'another operation on what is carried on',
      ['Bob: 12 + 7 = 18', 'Eva: 18 + 3 = 21'],
      ['slip', 'operation'],
    ],
    ['a step that is left out', ['Eva: 12 × 3 = 36', 'together: 36 + 12 = 48'], ['dropped', 'carried']],
    ['a number from elsewhere', ['Bob: 12 + 3 = 15'], ['copied']],
    ['the name of another quantity', ['Eva: 12 + 7 = 19'], ['quantity']],
    ['a line that was there', ['Bob: 12 + 7 = 19', 'Bob: 12 + 7 = 19'], ['right', 'repeated']],
    ['nothing that is needed', ['left: 99 - 44 = 55'], ['other']],
    [
      'prose, halves of lines, other marks',
      ['Bob has more', 'Bob: 12 + = 19', '12 ^ 7 = 19', ''],
      ['unreadable', 'unreadable', 'unreadable'],
    ],
    ['a wrong answer after right steps', ['Bob: 12 + 7 = 19', 'Answer: 70'], ['right', 'answer']],
  ])('names %s', (_, lines, expected) => {
    expect(errorsOf(...lines)).toEqual(expected);
  });

  it('goes on from right steps after a wrong line that was put right', () => {
    expect(errorsOf('Bob: 12 + 7 = 18', 'Bob: 12 + 7 = 19', 'Eva: 19 × 3 = 57')).toEqual([
      'slip',
      'right',
      'right',
    ]);
  });

  it('finds every right solution right, and in drawn ones the first wrong line of the kind that was drawn', () => {
    const found = new Map<string, number>();
    const problems = [...wordProblems({ seed: 3, samples: 600, levels: [1, 1, 1, 1], templates: 'all' })];
    for (const [i, made] of problems.entries()) {
      const right = judgeSolution(made, rightSolution(made));
      expect(
        right.lines.every((line) => line.right),
        made.problem,
      ).toBe(true);
      expect([right.missing, right.isAnswerRight]).toEqual([[], true]);
      const kind = MISTAKES[i % MISTAKES.length]!;
      const lines = drawnSolution(made, new PhiloxStream(1, 2, i), { error_rate: 0.3, mistakes: [kind] });
      const first = judgeSolution(made, lines).lines.find((line) => !line.right);
      if (first) found.set(`${kind} ${first.error}`, (found.get(`${kind} ${first.error}`) ?? 0) + 1);
      if (first && kind === 'slip') expect(first.error).toBe('slip');
      if (first && kind === 'operation')
        expect(['operation', 'other', 'copied'], lines.join('\n')).toContain(first.error);
    }
    // A line may be wrong in more ways than one: `5 + 5` for `5 + 3` is a copied number or one that was left out.
    for (const kind of MISTAKES) {
      const all = [...found].filter(([name]) => name.startsWith(kind)).reduce((sum, [, n]) => sum + n, 0);
      const error = kind === 'swapped' ? 'slip' : kind;
      const named = found.get(`${kind} ${error}`) ?? 0;
      expect(named / all, `${kind}: ${JSON.stringify([...found])}`).toBeGreaterThan(
        kind === 'dropped' ? 0.6 : 0.75,
      );
    }
  });

  it('agrees with the outcome: a solution of right and complete steps has the right answer', () => {
    let lucky = 0;
    for (const [i, made] of [...wordProblems({ seed: 4, samples: 1500, levels: [0, 1] })].entries()) {
      const lines = drawnSolution(made, new PhiloxStream(1, 3, i), { error_rate: 0.2 });
      const { lines: judged, isAnswerRight, missing } = judgeSolution(made, lines);
      if (judged.slice(0, -1).every((line) => line.right) && missing.length === 0)
        expect(isAnswerRight).toBe(true);
      if (isAnswerRight && judged.some((line) => !line.right)) lucky++;
    }
    expect(lucky).toBeGreaterThan(100);
  });
});

describe('errorName', () => {
  const nameOf = (...lines: string[]) => errorName(judgeSolution(problem, lines).lines.at(-1)!);

  it.each([
    ['slip of 1', 'Bob: 12 + 7 = 20'],
    ['slip of 10', 'Bob: 12 + 7 = 9'],
    ['digits swapped', '12+7=91'],
    ['other slip', 'Bob: 12 + 7 = 17'],
    ['another operation', 'Bob: 12 × 7 = 84'],
    ['another number', 'Bob: 12 + 3 = 15'],
    ['another quantity', 'Eva: 12 + 7 = 19'],
    ['wrong answer', 'Answer: 68'],
    [undefined, 'Bob: 12 + 7 = 19'],
  ])('%s: %s', (name, line) => {
    expect(nameOf(line)).toBe(name);
  });

  it('tells an answer that is carried on from a computation that is', () => {
    expect(nameOf('Bob: 12 + 7 = 18', 'Eva: 18 × 3 = 54')).toBe('carried on');
    const all = ['Bob: 12 + 7 = 18', 'Eva: 18 × 3 = 54', 'together: 54 + 12 = 66', 'Answer: 66'];
    expect(nameOf(...all)).toBe('answer carried on');
  });
});

describe('answers', () => {
  it('reads them where a solution has them', () => {
    expect(isRightAnswer(problem, 'Bob: 12 + 7 = 19\nAnswer: 69')).toBe(true);
    expect(isRightAnswer(problem, 'The answer is 69.')).toBe(true);
    expect(isRightAnswer(problem, '\\boxed{69}')).toBe(true);
    expect(isRightAnswer(problem, 'Answer: 6')).toBe(false);
    expect(isRightAnswer({ answer: 'Ann' }, 'Answer: ann')).toBe(true);
    expect(isRightAnswer({ answer: 'yes' }, 'Answer: no')).toBe(false);
    expect(isRightAnswer({ answer: '5' }, '')).toBe(false);
  });

  it('judges a text line by line', () => {
    const { answer, lines } = judgeText(problem, '\nBob: 12 + 7 = 19\n\nAnswer: 12\n');
    expect([answer, lines.map(({ right }) => right)]).toEqual(['12', [true, false]]);
  });
});
