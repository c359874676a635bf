import { describe, expect, it } from 'vitest';
import { type ArithmeticOptions, arithmeticRecords } from '../../src/data/arithmetic.js';
import type { StepRecord } from '../../src/records/record.js';

const make = (options: Partial<ArithmeticOptions>): StepRecord[] => [
  ...arithmeticRecords({ seed: 7, samples: 2000, ...options }),
];

/** Parses `12-3=9` independently: the given and the right result. */
function read(text: string): { from: number; change: number; says: number } {
  const match = /^(\d+)([+-]\d+)=(\d+)$/.exec(text);
  if (match === null) throw new Error(text);
  return { from: Number(match[1]), change: Number(match[2]), says: Number(match[3]) };
}

describe('arithmeticRecords', () => {
  it('generates chains of four steps with labels that match the arithmetic', () => {
    for (const record of make({ error_rate: 0.5 })) {
      const [start, ...changes] = record.problem.split(';').map(Number);
      expect(changes).toHaveLength(4);
      expect(record.steps).toHaveLength(4);
      let value = start;
      for (const [i, step] of record.steps.entries()) {
        const { from, change, says } = read(step.text);
        expect(from, record.problem).toBe(value);
        expect(change).toBe(changes[i]);
        expect(step.label).toBe(from + change === says ? 1 : 0);
        value = says;
      }
      const answer = changes.reduce((sum, change) => sum + change, start ?? 0);
      expect(record.gold_answer).toBe(String(answer));
      expect(record.outcome).toBe(value === answer ? 1 : 0);
    }
  });

  it('stays within its ranges and its few characters', () => {
    for (const options of [{}, { max_operand: 9, max_value: 30, steps: 7 }]) {
      const { max_operand: maxOperand, max_value: maxValue } = { max_operand: 20, max_value: 99, ...options };
      for (const record of make({ error_rate: 0.5, ...options })) {
        expect(record.problem + record.steps.map((step) => step.text).join('')).toMatch(/^[0-9;+=-]+$/);
        for (const { from, change, says } of record.steps.map((step) => read(step.text))) {
          expect(Math.min(from, says)).toBeGreaterThanOrEqual(0);
          expect(Math.max(from, says)).toBeLessThanOrEqual(maxValue);
          expect(Math.abs(change)).toBeGreaterThanOrEqual(1);
          expect(Math.abs(change)).toBeLessThanOrEqual(maxOperand);
        }
      }
    }
  });

  it('makes no errors by default, else errors at the given rate', () => {
    const wrongShare = (error_rate: number): number => {
      const labels = make({ error_rate }).flatMap((record) => record.steps.map((step) => step.label));
      return labels.filter((label) => label === 0).length / labels.length;
    };
    expect(make({}).every((record) => record.outcome === 1)).toBe(true);
    expect(wrongShare(0)).toBe(0);
    expect(wrongShare(0.2)).toBeCloseTo(0.2, 1);
    expect(wrongShare(0.5)).toBeCloseTo(0.5, 1);
    expect(wrongShare(1)).toBeGreaterThan(0.99);
  });

  it('labels a step that continues from an error as configured; the text is the same', () => {
    const own = make({ error_rate: 0.3 });
    const carried = make({ error_rate: 0.3, carried_error: 'incorrect' });
    expect(carried.map((record) => record.steps.map((step) => step.text))).toEqual(
      own.map((record) => record.steps.map((step) => step.text)),
    );
    for (const record of carried) {
      let right = Number(record.problem.split(';')[0]);
      for (const step of record.steps) {
        const { from, change, says } = read(step.text);
        expect(step.label).toBe(from === right && from + change === says ? 1 : 0);
        right += change;
      }
    }
  });

  it('makes problem i from the seed and i alone', () => {
    expect(make({ first: 500, samples: 10 })).toEqual(make({ samples: 600 }).slice(500, 510));
    expect(make({ seed: 8, samples: 5 })).not.toEqual(make({ samples: 5 }));
    const problems = new Set(make({ samples: 2000 }).map((record) => record.problem));
    expect(problems.size).toBeGreaterThan(1990);
  });

  it('gives the same records on every machine and in every version', () => {
    expect(make({ samples: 1, error_rate: 0.5 })[0]).toMatchInlineSnapshot(`
      {
        "gold_answer": "27",
        "outcome": 0,
        "problem": "18;+2;+2;-1;+6",
        "provenance": {
          "file": "arithmetic",
          "row": 1,
        },
        "steps": [
          {
            "kind": "normal",
            "label": 0,
            "text": "18+2=30",
          },
          {
            "kind": "normal",
            "label": 1,
            "text": "30+2=32",
          },
          {
            "kind": "normal",
            "label": 0,
            "text": "32-1=34",
          },
          {
            "kind": "normal",
            "label": 1,
            "text": "34+6=40",
          },
        ],
      }
    `);
  });

  it('names an option that cannot work', () => {
    expect(() => make({ steps: 0 })).toThrow(
      'data.arithmetic.steps is 0; expected a whole number of at least 1',
    );
    expect(() => make({ max_value: 5 })).toThrow(
      'data.arithmetic.max_value is 5; expected a whole number of at least 20',
    );
    expect(() => make({ error_rate: 2 })).toThrow(
      'data.arithmetic.error_rate is 2; expected a probability from 0 to 1',
    );
    expect(() => make({ seed: -1 })).toThrow('data.arithmetic.seed is -1; expected a whole number');
  });
});
