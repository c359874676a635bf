/** A word problem and its plan: the computations that it needs, in any wording. */
import type { Part } from '../split.js';
import type { Fact, Operation } from './facts.js';

/** A number of the text, or the result of an earlier step. */
export interface Operand {
  readonly value: number;
  /** Index of the step whose result it is. */
  readonly step?: number;
}

/** One computation of the plan. */
export interface PlannedStep {
  /** The quantity that is computed: `Ann`, `together`, `left`. */
  readonly about: string;
  readonly left: Operand;
  readonly op: Operation;
  readonly right: Operand;
  readonly result: number;
  /** The operation that the wording suggests to somebody who misreads it; absent where it does not mislead. */
  readonly misread?: Operation;
}

/** The way from the results to the answer: a number, or a coarser answer that a wrong number may also give. */
export type Ending =
  | { readonly kind: 'number'; readonly step: number }
  | { readonly kind: 'parity'; readonly step: number; readonly even: string; readonly odd: string }
  | {
      readonly kind: 'limit';
      readonly step: number;
      readonly relation: '>' | '<' | '≥';
      readonly limit: number;
    }
  | { readonly kind: 'remainder'; readonly step: number }
  | {
      readonly kind: 'who';
      readonly steps: readonly [number, number];
      readonly names: readonly [string, string];
    };

/** All that the oracle and an evaluation need; a row of JSON. */
export interface WordProblem {
  readonly problem: string;
  readonly answer: string;
  /** 1 to 4: more operations, larger numbers. */
  readonly level: number;
  readonly template: string;
  /** 0 to 2: how the template is put into words. */
  readonly wording: number;
  readonly part: Part;
  readonly plan: readonly PlannedStep[];
  readonly ending: Ending;
}

export function factOf({ left, op, right }: PlannedStep): Fact {
  return { left: left.value, op, right: right.value };
}

/** The answer that follows from `results`, one for each step of the plan. */
export function answerFrom(ending: Ending, results: readonly number[]): string {
  const at = (step: number) => results[step] as number;
  switch (ending.kind) {
    case 'number':
    case 'remainder':
      return String(at(ending.step));
    case 'parity':
      return at(ending.step) % 2 === 0 ? ending.even : ending.odd;
    case 'limit':
      return holds(at(ending.step), ending.relation, ending.limit) ? 'yes' : 'no';
    case 'who': {
      const [first, second] = ending.steps;
      return ending.names[at(first) > at(second) ? 0 : 1];
    }
  }
}

function holds(value: number, relation: '>' | '<' | '≥', limit: number): boolean {
  if (relation === '>') return value > limit;
  return relation === '<' ? value < limit : value >= limit;
}
