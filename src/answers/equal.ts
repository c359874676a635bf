// Whether an answer is the expected one.
import { checkText } from '../native/errors.js';
import { Algebra } from './algebra.js';
import { BudgetExceeded, DEFAULT_STEPS, StepBudget } from './budget.js';
import { sameChoice } from './choice.js';
import { type CompareOptions, same } from './compare.js';
import { Unreadable } from './cursor.js';
import { normalise, plainForm } from './normalise.js';
import { parseAnswer } from './parse.js';
import { NotExact } from './rational.js';
import { withoutUnits } from './rewrite.js';
import { realValue } from './sampling.js';
import { ratioOf } from './scalar.js';
import type { Node } from './syntax.js';
import { withUnitLetters } from './units.js';

/**
 * The comparison that decided.
 * - `text`: the answers read the same, or they read differently and at least one could not be read as mathematics, or
 *   holds
 *   something that is not computed (an integral, a limit, `f(2)`): not decided, and counted as different
 * - `choice`: the letters of a multiple choice
 * - `exact`: exact arithmetic
 * - `numeric`: the values agree to 11 digits at every sample of their variables
 * - `rounded`: one is the other, rounded or cut off, to at least `digits` significant digits
 * - `unit`: the same except for a unit that one of them leaves out
 * - `budget`: too long to compare within `steps`; counts as different
 */
export type EqualityMethod = 'text' | 'choice' | 'exact' | 'numeric' | 'rounded' | 'unit' | 'budget';

export interface Equality {
  readonly equal: boolean;
  readonly method: EqualityMethod;
}

export interface EqualityOptions {
  /**
   * Significant digits from which a decimal equals the value that it is rounded from. Default 6; Infinity for never.
   */
  readonly digits?: number | undefined;
  /** Whether one side may leave its unit out. Default `optional`. */
  readonly units?: 'optional' | 'required' | undefined;
  /** Bound on the work, in counted steps, so that the verdict is the same on every machine. Default 100,000. */
  readonly steps?: number | undefined;
}

/**
 * Whether two answers in LaTeX or plain notation mean the same. Symmetric; never throws on any text; an empty answer
 * equals nothing. Take a whole solution's answer with {@link extractAnswer} first.
 */
export function answersEqual(got: string, expected: string, options: EqualityOptions = {}): Equality {
  checkText('answersEqual: the first answer', got);
  checkText('answersEqual: the second answer', expected);
  return equality(got, expected, options, false);
}

/**
 * Whether a reply means the expected answer: as {@link answersEqual}, and where it says of a quantity of several names what
 * it is. `m + n = 293` answers 293, but 293 does not answer `m + n = 293`, which may be a line that was asked for.
 */
export function answers(reply: string, expected: string, options: EqualityOptions = {}): Equality {
  return equality(reply, expected, options, true);
}

function equality(got: string, expected: string, options: EqualityOptions, isReply: boolean): Equality {
  const { digits = 6, units = 'optional', steps = DEFAULT_STEPS } = options;
  if (!(digits >= 1)) throw new RangeError(`digits is ${digits}; expected a number of at least 1`);
  if (!(Number.isSafeInteger(steps) && steps >= 1))
    throw new RangeError(`steps is ${steps}; expected a whole number of at least 1`);
  const [a, b] = [normalise(got), normalise(expected)];
  if (a === '' || b === '') return { equal: false, method: 'text' };
  const [left, right] = [plainForm(a), plainForm(b)];
  if (left === right) return { equal: true, method: 'text' };
  const choice = sameChoice(left, right);
  if (choice !== undefined) return { equal: choice, method: 'choice' };
  try {
    const settings = { digits, units, isReply, budget: new StepBudget(steps) };
    const verdict = compared(a, b, settings);
    if (verdict.equal) return verdict;
    // In `5 m` the letter may be a unit.
    const [one, two] = [withUnitLetters(a), withUnitLetters(b)];
    return one === a && two === b ? verdict : compared(one, two, settings);
  } catch (error) {
    if (error instanceof BudgetExceeded) return { equal: false, method: 'budget' };
    // An answer that cannot be parsed or computed is compared as text.
    if (error instanceof Unreadable || error instanceof NotExact) return { equal: false, method: 'text' };
    throw error;
  }
}

interface Settings {
  readonly digits: number;
  readonly units: 'optional' | 'required';
  readonly isReply: boolean;
  readonly budget: StepBudget;
}

function compared(a: string, b: string, { digits, units, isReply, budget }: Settings): Equality {
  const algebra = new Algebra(budget);
  const options = { algebra, digits, isReply };
  const read = (thousands: boolean) =>
    [a, b].map((text) => parseAnswer(text, budget, { thousands })) as [Node, Node];
  const [left, right] = read(true);
  const method = same(left, right, options);
  if (method !== undefined) return { equal: true, method };
  // `100,200` may be a list if the other answer is one.
  if (left.kind === 'list' || right.kind === 'list') {
    const [one, two] = read(false);
    const asLists = one.kind === 'list' && two.kind === 'list' ? same(one, two, options) : undefined;
    if (asLists !== undefined) return { equal: true, method: asLists };
  }
  if (units === 'optional' && sameWithoutUnit(left, right, options)) return { equal: true, method: 'unit' };
  if (algebra.opaque) return { equal: false, method: 'text' };
  return { equal: false, method: algebra.sampled ? 'numeric' : 'exact' };
}

/** Whether they are the same where one of them leaves its unit out, which may be any that the other names. */
function sameWithoutUnit(left: Node, right: Node, options: CompareOptions): boolean {
  for (let larger = 0; ; larger++) {
    const [bareLeft, bareRight] = [withoutUnits(left, larger), withoutUnits(right, larger)];
    const bare = bareLeft ?? bareRight;
    if (bare === undefined || (bareLeft !== undefined && bareRight !== undefined)) return false;
    const mayBe = !bare.percent || isAboveOne(options.algebra, bare.node);
    if (mayBe && same(bareLeft?.node ?? left, bareRight?.node ?? right, options) !== undefined) return true;
  }
}

/** Whether a number may mean percent: 50 may be 50 %, but 0.5 is not 0.5 %. */
function isAboveOne(algebra: Algebra, node: Node): boolean {
  const value = ratioOf(algebra, node);
  return value !== undefined && Math.abs(realValue(algebra, value) ?? 0) > 1;
}
