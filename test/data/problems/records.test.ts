// Word problems as records: parts, labels, drills and misreadings.
import { describe, expect, it } from 'vitest';
import { type Fact, factKey, factPart, type Operation } from '../../../src/data/problems/facts.js';
import type { WordProblem } from '../../../src/data/problems/problem.js';
import { resultOf } from '../../../src/data/problems/reasons.js';
import { type WordProblemRecordOptions, wordProblemRecords } from '../../../src/data/problems/records.js';
import { MISTAKES, rightSolution } from '../../../src/data/problems/solution.js';

const make = (options: Partial<WordProblemRecordOptions>) => [
  ...wordProblemRecords({ seed: 1, samples: 1200, ...options }),
];

function factsIn(text: string): Fact[] {
  return [...text.matchAll(/(\d+) ?([-+×÷]|mod) ?(\d+)/g)].map(([, left, op, right]) => ({
    left: Number(left),
    op: op as Operation,
    right: Number(right),
  }));
}

describe('wordProblemRecords', () => {
  it('gives right solutions, each in its part', () => {
    const records = make({});
    const shareOf = (part: string) => records.filter((one) => one.part === part).length / records.length;
    expect(
      [shareOf('train'), shareOf('validation'), shareOf('test')].map((share) => share.toFixed(1)),
    ).toEqual(['0.8', '0.1', '0.1']);
    const odd = records.filter(
      ({ record: { outcome, steps, gold_answer: answer, gold_solution: solution } }) =>
        outcome !== 1 ||
        steps.some(({ label }) => label !== 1) ||
        steps.at(-1)?.text !== `Answer: ${answer}` ||
        solution !== steps.map(({ text }) => text).join('\n'),
    );
    expect(odd).toEqual([]);
  });

  it.each<[string, Partial<WordProblemRecordOptions>]>([
    ['misreadings', { error_rate: 0.3, misread_rate: 0.5 }],
    ['other mistakes', { error_rate: 0.3, mistakes: MISTAKES, unnamed_rate: 0.3 }],
  ])('holds no fact of another part in training, with drills and %s', (_, options) => {
    const held = new Set<string>();
    const leaked: string[] = [];
    for (const { part, record } of make({ ...options, drill_rate: 0.2, samples: 2400 })) {
      for (const { text } of record.steps) {
        for (const fact of factsIn(text)) {
          const of = factPart(fact);
          if (part === 'train' && of !== 'train' && of !== 'shared') leaked.push(text);
          else if (part !== 'train' && of === part) held.add(factKey(fact));
        }
      }
    }
    expect(leaked).toEqual([]);
    expect(held.size).toBeGreaterThan(100);
  });

  it('draws about as many mistakes as asked, and labels what they spoil', () => {
    const steps = make({ error_rate: 0.2 }).flatMap(({ record }) => record.steps);
    const wrong = steps.filter(({ label }) => label === 0).length / steps.length;
    // What is carried on counts too.
    expect(wrong).toBeGreaterThan(0.2);
    expect(wrong).toBeLessThan(0.5);
  });

  it('misreads wordings 1 and 2 alone, and always alike', () => {
    const records = make({ misread_rate: 1 });
    const unexpected = records.filter(
      ({ record, problem }) =>
        (problem?.wording === 0 && record.outcome !== 1) ||
        (problem?.wording === 1 && record.steps.some(({ text }) => text.includes(' - '))),
    );
    expect(unexpected).toEqual([]);
    const outcomes = records.map(({ record }) => record.outcome);
    expect(outcomes.filter((outcome) => outcome === 0).length).toBeGreaterThan(300);
  });

  it('has drills in the first half of training alone', () => {
    const records = make({ drill_rate: 0.5 });
    const drills = records.flatMap(({ problem, part }, i) => (problem === undefined ? [{ part, i }] : []));
    expect(drills.length).toBeGreaterThan(200);
    for (const { part, i } of drills) expect([part, i < 600]).toEqual(['train', true]);
    expect(records.find(({ problem }) => problem === undefined)?.record.steps.length).toBe(6);
  });

  it('drills names: computations under theirs, and chains in which a name stands for its result', () => {
    const drills = make({ drill_rate: 1 }).flatMap(({ record, problem }) => (problem ? [] : [record]));
    const chains = drills.filter(({ problem }) => /^\w+: \d+,/.test(problem));
    expect(chains.length / drills.length).toBeGreaterThan(0.35);
    expect(chains.length / drills.length).toBeLessThan(0.65);
    for (const { problem, steps } of drills) {
      const values = new Map<string, string>();
      const expected = problem.split(', ').flatMap((item) => {
        const [, about = '', left = '', op, right] = /^(\w+): (\w+)(?: (.) (\d+))?$/.exec(item) ?? [];
        if (op === undefined) values.set(about, left);
        if (op === undefined) return [];
        const [a, b] = [Number(values.get(left) ?? left), Number(right)];
        const result = op === '+' ? a + b : op === '-' ? a - b : a * b;
        values.set(about, String(result));
        return [`${about}: ${a} ${op} ${b} = ${result}`];
      });
      expect(steps.map(({ text }) => text)).toEqual(expected);
    }
  });

  it('shows attempts in training alone, each with as many right lines after it and mostly its last result', () => {
    const plain = make({});
    const records = make({ attempt_rate: 0.5, error_rate: 0.5 });
    const attempts = records.filter(({ record }) => record.problem.endsWith('\n?'));
    expect(attempts.length / records.filter(({ part }) => part === 'train').length).toBeCloseTo(0.5, 1);
    let [wrong, restated] = [0, 0];
    for (const { part, record, problem } of attempts) {
      const [text, ...lines] = record.problem.split('\n');
      const shown = lines.slice(0, -1);
      const right = rightSolution(problem as WordProblem).slice(0, shown.length);
      const [worked, result] = record.steps.flatMap((step) => step.text.split('; '));
      expect([part, text, worked]).toEqual(['train', problem?.problem, right.join(', ')]);
      if (result !== undefined) {
        restated++;
        expect(result).toBe(resultOf(shown.at(-1) as string));
      }
      if (shown.some((line, i) => line !== right[i])) wrong++;
    }
    expect(wrong / attempts.length).toBeGreaterThan(0.3);
    expect(restated / attempts.length).toBeCloseTo(0.6, 1);
    // Mistakes stand in attempts alone, and without attempts nothing else is drawn.
    expect(records.filter((one) => !attempts.includes(one)).every(({ record }) => record.outcome === 1)).toBe(
      true,
    );
    expect(make({ attempt_rate: 0 })).toEqual(plain);
  });

  it('compares the result of the last line with another: 1 where name and result are the same', () => {
    const records = make({ comparison_rate: 0.5 });
    const compared = records.filter(({ record: { problem } }) => problem.includes('; '));
    expect(compared.length / records.length).toBeCloseTo(0.4, 1);
    const pairs = compared.map(({ part, record: { problem, steps } }) => {
      const [lines = '', beside = ''] = problem.split('; ');
      const last = lines.split(', ').at(-1) as string;
      expect([part, steps.map(({ text }) => text)]).toEqual([
        'train',
        [resultOf(last) === beside ? '1' : '0'],
      ]);
      const [name, result] = resultOf(last).split(': ');
      const isShown = beside.split(': ').some((of) => lines.slice(0, -last.length).includes(of));
      return { lines, differs: beside.split(': ').map((of, i) => of !== [name, result][i]), isShown };
    });
    const share = (is: (pair: (typeof pairs)[number]) => boolean) => pairs.filter(is).length / pairs.length;
    // Half differ, in the name or in the result and never in both; some by what stands in an earlier line.
    expect(share(({ differs }) => !differs.includes(true))).toBeCloseTo(0.5, 1);
    expect(share(({ differs }) => differs.every(Boolean))).toBe(0);
    expect(share(({ differs: [name] }) => name === true)).toBeGreaterThan(0.08);
    expect(share(({ differs, isShown }) => differs.includes(true) && isShown)).toBeGreaterThan(0.05);
    expect(share(({ lines }) => !lines.includes('='))).toBeGreaterThan(0.3);
  });

  it('refuses shares that are more than all samples', () => {
    expect(() => make({ attempt_rate: 0.7, comparison_rate: 0.4 })).toThrow('together at most 1');
  });

  it('writes lines without a quantity, with and without spaces, where it is asked for', () => {
    const lines = make({ unnamed_rate: 0.5 }).map(({ record }) => record.steps[0]!.text);
    const share = (form: RegExp) => lines.filter((line) => form.test(line)).length / lines.length;
    expect(share(/^[a-z]+: /i)).toBeCloseTo(0.5, 1);
    expect(share(/^\d+ . \d+ = /)).toBeCloseTo(0.25, 1);
    expect(share(/^\d+.\d+=\d/)).toBeCloseTo(0.25, 1);
  });

  it('says which option cannot work', () => {
    expect(() => make({ misread_rate: 2 })).toThrow(
      'data.word_problems.misread_rate is 2; expected a probability from 0 to 1',
    );
    expect(() => make({ levels: [] })).toThrow('the shares of the levels are []');
  });
});
