// Word problems as conversations with a calculator, and the oracle of their turns.
import { expect, it } from 'vitest';
import { wordProblemRecords } from '../../../src/data/problems/records.js';
import { judgeTurns, linesOfTurn, turnOfLine } from '../../../src/data/problems/turns.js';
import { oracleScorer } from '../../../src/scoring/oracle.js';

const problem = {
  problem: 'Tom has 12 apples. Tom finds 7 more. Tom loses 4.',
  answer: '15',
  plan: [
    { about: 'Tom', left: { value: 12 }, op: '+', right: { value: 7 }, result: 19 },
    { about: 'Tom', left: { value: 19, step: 0 }, op: '-', right: { value: 4 }, result: 15 },
  ],
  ending: { kind: 'number', step: 1 },
} as const;
const turns = (...lines: string[]) => lines.map(turnOfLine);

it('a line is a turn that calls the calculator, whose result it has, and the other way round', () => {
  expect(turnOfLine('Tom: 12 + 7 = 19')).toEqual({
    text: 'Tom',
    message: {
      tool_calls: [
        { type: 'function', function: { name: 'calculator', arguments: { expression: '12 + 7' } } },
      ],
    },
    results: [{ role: 'tool', name: 'calculator', content: '19' }],
  });
  for (const line of ['Tom: 12 + 7 = 19', 'rest: 19 mod 4 = 3', '8 ÷ 2 = 4', 'Answer: 15'])
    expect(linesOfTurn(turnOfLine(line))).toEqual([line]);
});

it.each([
  [
    ['Tom: 12 + 7 = 19', 'Tom: 19 - 4 = 15', 'Answer: 15'],
    [true, true, true],
  ],
  // The wrong operation, what follows from it, and the answer that follows.
  [
    ['Tom: 12 + 7 = 19', 'Tom: 19 + 4 = 23', 'Answer: 23'],
    [true, false, false],
  ],
  [
    ['Tom: 12 - 7 = 5', 'Tom: 5 - 4 = 1', 'Answer: 15'],
    [false, false, true],
  ],
  // A right turn again is nothing that the problem needs.
  [
    ['Tom: 12 + 7 = 19', 'Tom: 12 + 7 = 19', 'Answer: 15'],
    [true, false, true],
  ],
  [['I do not know.'], [false]],
])('the oracle judges the turns of %j as %j', (lines, right) => {
  expect(judgeTurns(problem, turns(...lines)).map((turn) => turn.right)).toEqual(right);
});

it('a turn with several calls is right if all of them are; one that says nothing is wrong', () => {
  const both = {
    text: '',
    message: {
      tool_calls: [...turns('12 + 7 = 19', '19 - 4 = 15')].flatMap((one) => one.message?.tool_calls),
    },
    results: [
      { role: 'tool', content: '19' },
      { role: 'tool', content: '15' },
    ],
  };
  expect(linesOfTurn(both)).toEqual(['12 + 7 = 19', '19 - 4 = 15']);
  expect(judgeTurns(problem, [both, { text: '' }]).map(({ right }) => right)).toEqual([true, false]);
  const wrong = { ...both, results: both.results.toReversed() };
  expect(judgeTurns(problem, [wrong]).map(({ right }) => right)).toEqual([false]);
});

it('the scorer of the oracle reads turns', async () => {
  const steps = turns('Tom: 12 + 7 = 19', 'Tom: 19 + 4 = 23', 'Answer: 23').map(
    (turn) => ({ ...turn, label: null, kind: 'normal' }) as const,
  );
  const conversation = { prompt: [{ role: 'user', content: problem.problem }], steps };
  const own = { ...problem, level: 1, template: 'events', wording: 0, part: 'test' } as const;
  const of = { problem: problem.problem, answer: '15', generated: own };
  const found = await oracleScorer.score([
    { problem: problem.problem, of, steps: steps.map(({ text }) => text), turns: conversation },
  ]);
  expect(found?.[0]?.scores).toEqual([1, 0, 0]);
});

it('generated conversations have the mistakes that a calculator allows, labelled by the oracle', () => {
  const made = [
    ...wordProblemRecords({ seed: 3, samples: 400, error_rate: 0.3, misread_rate: 0.4, turns: true }),
  ].map(({ record }) => record);
  expect(
    made.every(({ turns: are, tools, prompt }) => are && tools?.length === 1 && Array.isArray(prompt)),
  ).toBe(true);
  const steps = made.flatMap((record) => record.steps);
  const errors = new Set(steps.map(({ error }) => error));
  expect([...errors].filter((error) => /slip|swapped/.test(error ?? ''))).toEqual([]);
  expect(errors).toContain('another operation');
  // A right answer after a wrong turn is rare, and none is right as a whole without a right answer.
  for (const { steps: own, outcome } of made) expect(own.at(-1)?.label).toBe(outcome);
  const right = steps.filter(({ label }) => label === 1).length / steps.length;
  expect(right).toBeGreaterThan(0.3);
  expect(right).toBeLessThan(0.8);
});

it.each([
  [{ drill_rate: 0.2 }, /drill_rate is about solutions in lines/],
  [{ unnamed_rate: 0.2 }, /unnamed_rate is about solutions in lines/],
  [{ error_rate: 0.2, mistakes: ['slip'] as const }, /mistakes names slips alone, and the calculator/],
])('refuses %j', (options, sentence) => {
  expect(() => [...wordProblemRecords({ seed: 1, samples: 3, turns: true, ...options })]).toThrow(sentence);
});
