/** Solutions as a pupil writes them: a line for each step, then the answer; right ones, and wrong ones of known kinds. */
import type { PhiloxStream } from '../../random/philox.js';
import { evaluate, factPart, type Operation } from './facts.js';
import { answerLine, stepLine } from './line.js';
import { answerFrom, type Operand, type PlannedStep, type WordProblem } from './problem.js';

/** What can go wrong in a step by itself. */
export type Mistake = 'slip' | 'operation' | 'copied' | 'dropped';
export const MISTAKES = ['slip', 'operation', 'copied', 'dropped'] as const satisfies readonly Mistake[];

export interface MistakeOptions {
  /** Probability that a step goes wrong. Default 0. */
  readonly error_rate?: number;
  /** In which ways, each equally often. Default all. */
  readonly mistakes?: readonly Mistake[];
  /** Probability that a step whose wording misleads is misread: a misconception, in part of the wordings. Default 0. */
  readonly misread_rate?: number;
}

/** Errors a person makes: off by one or two, a lost or added ten. */
const SLIPS = [-10, -2, -1, 1, 2, 10];

/** Wrong results stay below this. */
const LARGEST = 2000;

/** The lines of a solution without a mistake. */
export function rightSolution({ plan, answer }: WordProblem): string[] {
  return [...rightSteps(plan), answerLine(answer)];
}

export function rightSteps(plan: readonly PlannedStep[]): string[] {
  return plan.map((step) => stepLine({ ...step, left: step.left.value, right: step.right.value }));
}

/** What goes wrong in each step, settled before the numbers. */
export type Plans = readonly {
  readonly isMisread: boolean;
  readonly mistake: Mistake | undefined;
  /** Of the ways to make the mistake, as a share from 0 to 1. */
  readonly way: number;
}[];

export function drawMistakes(draw: PhiloxStream, options: MistakeOptions, steps: number): Plans {
  const { error_rate: errors = 0, misread_rate: misread = 0, mistakes = MISTAKES } = options;
  return Array.from({ length: steps }, () => {
    const isMisread = draw.uniform() < misread;
    const isMistaken = draw.uniform() < errors;
    return { isMisread, mistake: isMistaken ? draw.pick(mistakes) : undefined, way: draw.uniform() };
  });
}

/**
 * The lines of a solution with mistakes; what follows a wrong result goes on from it. Undefined where that leads to a number
 * that cannot be, or in the training part to a fact of another part: wrong lines hold none either.
 */
export function mistakenSolution(problem: WordProblem, mistakes: Plans): string[] | undefined {
  const { plan, ending, part } = problem;
  const results: number[] = [];
  const lines: string[] = [];
  const numberOf = ({ value, step }: Operand) => (step === undefined ? value : (results[step] as number));
  for (const [i, step] of plan.entries()) {
    const { isMisread, mistake, way } = mistakes[i] ?? { isMisread: false, mistake: undefined, way: 0 };
    let { op } = step;
    let left = numberOf(step.left);
    let right = numberOf(step.right);
    if (step.misread && isMisread) op = step.misread;
    if (mistake === 'dropped') {
      results.push(left);
      continue;
    }
    if (mistake === 'operation') op = at(way, otherOperations(op)) as Operation;
    if (mistake === 'copied') [left, right] = miscopied(problem, step, [left, right], way);
    let result = evaluate({ left, op, right });
    if (result === undefined) return undefined;
    if (mistake === 'slip') result += at(way, SLIPS) as number;
    if (result < 0 || result > LARGEST) return undefined;
    const of = factPart({ left, op, right });
    if (part === 'train' && of !== 'train' && of !== 'shared') return undefined;
    results.push(result);
    lines.push(stepLine({ about: step.about, left, op, right, result }));
  }
  return [...lines, answerLine(answerFrom(ending, results))];
}

function at<T>(share: number, items: readonly T[]): T | undefined {
  return items[Math.min(items.length - 1, Math.floor(share * items.length))];
}

function otherOperations(op: Operation): readonly Operation[] {
  return (['+', '-', '×'] as const).filter((other) => other !== op);
}

/** One operand becomes another number of the problem. */
function miscopied(
  { plan }: WordProblem,
  step: PlannedStep,
  [left, right]: [number, number],
  way: number,
): [number, number] {
  const numbers = plan.flatMap((each) => [each.left, each.right]).filter((each) => each.step === undefined);
  const given = step.right.step === undefined;
  const others = numbers.map(({ value }) => value).filter((value) => value !== (given ? right : left));
  const wrong = at(way, others);
  if (wrong === undefined) return [left, right];
  return given ? [left, wrong] : [wrong, right];
}
