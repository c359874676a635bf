// The generator: the same from a seed, true to its plan, and with facts of its own part alone.
import { describe, expect, it } from 'vitest';
import { evaluate, type Fact, factKey, factPart, type Operation } from '../../../src/data/problems/facts.js';
import { type WordProblemOptions, wordProblems } from '../../../src/data/problems/generate.js';
import { LEVELS } from '../../../src/data/problems/levels.js';
import { answerFrom, factOf, type WordProblem } from '../../../src/data/problems/problem.js';
import { HELD_OUT_TEMPLATES, TEMPLATES } from '../../../src/data/problems/templates/table.js';

const make = (options: Partial<WordProblemOptions>): WordProblem[] => [
  ...wordProblems({ seed: 5, samples: 600, levels: [1, 1, 1, 1], ...options }),
];

const factsOf = (problems: readonly WordProblem[]): Fact[] =>
  problems.flatMap(({ plan }) => plan.map(factOf));

describe('wordProblems', () => {
  it('problem i depends on the seed and i alone', () => {
    expect(make({ first: 40, samples: 5 })).toEqual(make({ samples: 45 }).slice(40));
    expect(make({ seed: 6, samples: 5 })).not.toEqual(make({ samples: 5 }));
    expect(new Set(make({}).map(({ problem }) => problem)).size).toBeGreaterThan(595);
  });

  it('is the same on every machine and in every version', () => {
    const [problem] = make({ samples: 1, levels: [0, 1] });
    expect(problem).toMatchInlineSnapshot(`
      {
        "answer": "15",
        "ending": {
          "kind": "number",
          "step": 3,
        },
        "level": 2,
        "part": "train",
        "plan": [
          {
            "about": "seats",
            "left": {
              "value": 4,
            },
            "op": "×",
            "result": 96,
            "right": {
              "value": 24,
            },
          },
          {
            "about": "free",
            "left": {
              "step": 0,
              "value": 96,
            },
            "op": "-",
            "result": 73,
            "right": {
              "value": 23,
            },
          },
          {
            "about": "free",
            "left": {
              "step": 1,
              "value": 73,
            },
            "op": "-",
            "result": 52,
            "right": {
              "value": 21,
            },
          },
          {
            "about": "free",
            "left": {
              "step": 2,
              "value": 52,
            },
            "op": "-",
            "result": 15,
            "right": {
              "value": 37,
            },
          },
        ],
        "problem": "A hall has 4 rows with 24 seats each. 23 seats are taken. 21 seats are taken. 37 seats are taken. How many seats are free?",
        "template": "seats",
        "wording": 0,
      }
    `);
  });

  it('has 15 templates in three wordings, and every level its number of operations and its values', () => {
    const problems = make({ templates: 'all', samples: 2000 });
    const kinds = new Set(problems.map(({ template, wording }) => `${template} ${wording}`));
    const names = [...Object.keys(TEMPLATES), ...Object.keys(HELD_OUT_TEMPLATES)];
    expect(names.length).toBeGreaterThanOrEqual(12);
    expect([...kinds].sort()).toEqual(names.flatMap((name) => [0, 1, 2].map((w) => `${name} ${w}`)).sort());
    for (const { level, plan, problem } of problems) {
      const { operations, maxValue } = LEVELS[level - 1]!;
      expect(plan.length, problem).toBeGreaterThanOrEqual(operations[0]);
      expect(plan.length, problem).toBeLessThanOrEqual(operations[1]);
      for (const { result } of plan) expect(result).toBeLessThanOrEqual(maxValue);
    }
  });

  it('plans what adds up: operands are numbers of the text or earlier results, and the answer follows', () => {
    for (const { problem, plan, ending, answer } of make({ templates: 'all' })) {
      const numbers = (problem.match(/\d+/g) ?? []).map(Number);
      for (const [i, step] of plan.entries()) {
        expect(evaluate(factOf(step))).toBe(step.result);
        for (const operand of [step.left, step.right]) {
          if (operand.step === undefined) expect(numbers, problem).toContain(operand.value);
          else {
            expect(operand.step).toBeLessThan(i);
            expect(plan[operand.step]!.result).toBe(operand.value);
          }
        }
      }
      expect(answer).toBe(
        answerFrom(
          ending,
          plan.map(({ result }) => result),
        ),
      );
    }
  });

  it('asks about a third of the easier problems for something coarser than a number', () => {
    const problems = make({ levels: [0, 1] });
    const coarse = problems.filter(({ ending }) => ending.kind !== 'number');
    expect(coarse.length / problems.length).toBeGreaterThan(0.25);
    for (const kind of ['parity', 'limit', 'who'])
      expect(coarse.some(({ ending }) => ending.kind === kind)).toBe(true);
    expect(problems.some(({ plan }) => plan.at(-1)?.op === 'mod')).toBe(true);
  });
});

describe('what is held out', () => {
  const train = make({ samples: 3000 });
  const seen = new Set(factsOf(train).map(factKey));

  it.each(['validation', 'test'] as const)(
    'every %s problem has a fact that no training problem has',
    (part) => {
      const problems = make({ part, samples: 2000, seed: 9, templates: 'all' });
      const known = problems.filter(({ plan }) => plan.every((step) => seen.has(factKey(factOf(step)))));
      expect(known).toEqual([]);
      const foreign = factsOf(problems).filter((fact) => ![part, 'shared'].includes(factPart(fact)));
      expect(foreign).toEqual([]);
    },
  );

  it('training has facts of training alone, and no held-out template', () => {
    expect(factsOf(train).filter((fact) => !['train', 'shared'].includes(factPart(fact)))).toEqual([]);
    expect(train.filter(({ template }) => !(template in TEMPLATES))).toEqual([]);
    expect(
      make({ templates: 'held_out', samples: 50 }).every(({ template }) => template in HELD_OUT_TEMPLATES),
    ).toBe(true);
  });

  it('a fact is the same with its operands exchanged, and some pairs are held out under every operation', () => {
    const parts = new Map<string, Set<string>>();
    const exchanged: number[] = [];
    for (let a = 10; a < 80; a++) {
      for (let b = 10; b < a; b++) {
        const of = (op: Operation) => factPart({ left: a, op, right: b });
        if (factPart({ left: b, op: '+', right: a }) !== of('+')) exchanged.push(a, b);
        parts.set(`${a},${b}`, new Set([of('+'), of('-'), of('×'), of('mod')]));
      }
    }
    expect(exchanged).toEqual([]);
    const whole = [...parts.values()].filter((one) => one.size === 1 && one.has('test'));
    expect(whole.length / parts.size).toBeCloseTo(0.025, 1);
    expect(factKey({ left: 3, op: '-', right: 12 })).not.toBe(factKey({ left: 12, op: '-', right: 3 }));
    expect(factPart({ left: 7, op: '×', right: 8 })).toBe('shared');
  });

  it('the held-out templates use words that training knows', () => {
    const wordsOf = (problems: readonly WordProblem[]) =>
      problems.flatMap(({ problem }) => problem.match(/[A-Za-z]+/g) ?? []);
    const known = new Set(wordsOf(train));
    expect(wordsOf(make({ templates: 'held_out' })).filter((word) => !known.has(word))).toEqual([]);
  });
});

it('says which option cannot work', () => {
  expect(() => make({ samples: -1 })).toThrow(
    'wordProblems: samples is -1; expected a whole number of at least 0',
  );
  expect(() => make({ levels: [0, 0] })).toThrow(
    'the shares of the levels are [0, 0]; expected 1 to 4 numbers',
  );
  expect(() => make({ levels: [1, 1, 1, 1, 1] })).toThrow('expected 1 to 4 numbers of at least 0');
});
