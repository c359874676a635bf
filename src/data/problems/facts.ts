/** The arithmetic of single steps, and which of it training may see. */
import { textHash } from '../../random/text-hash.js';
import type { Part } from '../split.js';

/** `mod` gives the rest of a division. */
export type Operation = '+' | '-' | '×' | '÷' | 'mod';

/** The computation of a step: `left op right`. */
export interface Fact {
  readonly left: number;
  readonly op: Operation;
  readonly right: number;
}

/** The result, or undefined where it is not a whole number of at least 0. */
export function evaluate({ left, op, right }: Fact): number | undefined {
  const result = calculate(left, op, right);
  return Number.isSafeInteger(result) && result >= 0 ? result : undefined;
}

function calculate(left: number, op: Operation, right: number): number {
  switch (op) {
    case '+':
      return left + right;
    case '-':
      return left - right;
    case '×':
      return left * right;
    case '÷':
      return left / right;
    case 'mod':
      return left % right;
  }
}

/** Two facts are the same if they have the same key: `7+12` is `12+7`. */
export function factKey({ left, op, right }: Fact): string {
  return (op === '+' || op === '×') && left < right ? `${right}${op}${left}` : `${left}${op}${right}`;
}

/** One of 40 pairs of operands belongs to the test part and one to validation; so do two of 20 further facts. */
const PAIRS = 40;
const FACTS = 20;

/**
 * The part that a fact belongs to, the same for every seed: a hash of its pair of operands, whatever the operation, else
 * of the fact. `shared`: facts of two digits and exact divisions, the tables that everything else is built from.
 */
export function factPart(fact: Fact): Part | 'shared' {
  const { left, op, right } = fact;
  if ((left < 10 && right < 10) || op === '÷') return 'shared';
  const pair = heldOut(`${Math.max(left, right)},${Math.min(left, right)}`, PAIRS);
  return pair === 'train' ? heldOut(factKey(fact), FACTS) : pair;
}

/** Whether a problem of `part` may hold the fact: training holds none of the other parts, and they none of training. */
export function isFactOf(part: Part, fact: Fact): boolean {
  const own = factPart(fact);
  return own === 'shared' || own === part;
}

function heldOut(key: string, outOf: number): Part {
  const bucket = textHash(key) % outOf;
  return bucket === 0 ? 'test' : bucket === 1 ? 'validation' : 'train';
}
