/** Solutions as a pupil writes them: a line for each step, then the answer; right ones, and wrong ones of known kinds. */
import type { PhiloxStream } from '../../random/philox.js';
import { evaluate, factPart, type Operation } from './facts.js';
import { answerLine, type LineForm, stepLine } from './line.js';
import { answerFrom, type Operand, type PlannedStep, type WordProblem } from './problem.js';
import { NAMES, THINGS } from './words.js';

/** The mistakes that a step can have by itself; `answer`: the answer that the solution states. */
export const MISTAKES = [
  ...(['slip', 'operation', 'copied', 'dropped'] as const),
  ...(['swapped', 'quantity', 'answer'] as const),
] as const;
export type Mistake = (typeof MISTAKES)[number];

/** The mistakes of a solution where none are named. */
export const USUAL_MISTAKES: readonly Mistake[] = MISTAKES.slice(0, 4);

export interface MistakeOptions {
  /** Probability that a step goes wrong. Default 0. */
  readonly error_rate?: number;
  /** The mistakes to make, each equally often. Default {@link USUAL_MISTAKES}. */
  readonly mistakes?: readonly Mistake[];
  /** Probability that a step whose wording misleads is misread: a misconception, in part of the wordings. Default 0. */
  readonly misread_rate?: number;
  /**
   * Probability that the lines of a solution lack the names of their results: `12 + 7 = 19`, or `12+7=19`. Default 0.
   */
  readonly unnamed_rate?: number;
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

/** The manner of a solution, drawn before the numbers. */
export interface Manner {
  /** The mistake of each step. */
  readonly steps: readonly {
    readonly isMisread: boolean;
    readonly mistake: Mistake | undefined;
    /** The way to make the mistake, as a position from 0 to 1 among all ways. */
    readonly way: number;
  }[];
  /** The wrong answer, as a position among all; absent: the answer follows from the lines before it. */
  readonly wrongAnswer?: number;
  /** Form of the computations. Default `named`. */
  readonly form?: LineForm;
}

export function drawManner(draw: PhiloxStream, options: MistakeOptions, steps: number): Manner {
  const { error_rate: errors = 0, misread_rate: misread = 0, mistakes = USUAL_MISTAKES } = options;
  const ofSteps = mistakes.filter((mistake) => mistake !== 'answer');
  const drawn = Array.from({ length: steps }, () => {
    const isMisread = draw.uniform() < misread;
    const isMistaken = draw.uniform() < errors && ofSteps.length > 0;
    return { isMisread, mistake: isMistaken ? draw.pick(ofSteps) : undefined, way: draw.uniform() };
  });
  const hasAnswer = mistakes.includes('answer') && draw.uniform() < errors;
  return {
    steps: drawn,
    ...(hasAnswer ? { wrongAnswer: draw.uniform() } : {}),
    ...(draw.uniform() < (options.unnamed_rate ?? 0) ? { form: draw.pick(['plain', 'tight']) } : {}),
  };
}

/**
 * The lines of a solution with mistakes; later lines continue from a wrong result. Undefined where that leads to an
 * impossible number or, in the training part, to a fact of another part, which wrong lines must not hold either.
 */
export function writtenSolution(
  problem: Pick<WordProblem, 'problem' | 'plan' | 'ending' | 'answer' | 'part'>,
  { steps, wrongAnswer, form }: Manner,
): string[] | undefined {
  const { plan, ending, part } = problem;
  const results: number[] = [];
  const lines: string[] = [];
  const numberOf = ({ value, step }: Operand) => (step === undefined ? value : (results[step] as number));
  for (const [i, step] of plan.entries()) {
    const { isMisread, mistake, way } = steps[i] ?? { isMisread: false, mistake: undefined, way: 0 };
    let { op, about } = step;
    let left = numberOf(step.left);
    let right = numberOf(step.right);
    if (step.misread && isMisread) op = step.misread;
    if (mistake === 'dropped') {
      results.push(left);
      continue;
    }
    if (mistake === 'operation') op = at(way, otherOperations(op)) as Operation;
    if (mistake === 'copied') [left, right] = miscopied(problem, step, [left, right], way);
    if (mistake === 'quantity') about = at(way, otherQuantities(problem, about)) ?? about;
    let result = evaluate({ left, op, right });
    if (result === undefined) return undefined;
    if (mistake === 'slip') result += at(way, SLIPS) as number;
    if (mistake === 'swapped') result = swapped(result) ?? result + (at(way, SLIPS) as number);
    if (result < 0 || result > LARGEST) return undefined;
    const of = factPart({ left, op, right });
    if (part === 'train' && of !== 'train' && of !== 'shared') return undefined;
    results.push(result);
    lines.push(stepLine({ about, left, op, right, result }, form));
  }
  const given = answerFrom(ending, results);
  const answer =
    wrongAnswer === undefined ? given : (at(wrongAnswer, otherAnswers(problem, given, results)) ?? given);
  return [...lines, answerLine(answer)];
}

function at<T>(share: number, items: readonly T[]): T | undefined {
  return items[Math.min(items.length - 1, Math.floor(share * items.length))];
}

function otherOperations(op: Operation): readonly Operation[] {
  return (['+', '-', '×'] as const).filter((other) => other !== op);
}

/** One operand becomes another number of the problem. */
function miscopied(
  { plan }: Pick<WordProblem, 'plan'>,
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

/** The digits of a number the other way round; undefined where that is the same or begins with 0. */
function swapped(value: number): number | undefined {
  const digits = String(value);
  const turned = [...digits].reverse().join('');
  return turned === digits || turned.startsWith('0') ? undefined : Number(turned);
}

/** People and things of the problem, and other quantities of its plan. */
function otherQuantities({ problem, plan }: Pick<WordProblem, 'problem' | 'plan'>, about: string): string[] {
  const told: readonly string[] = problem.match(/[A-Za-z]+/g) ?? [];
  const named = [...NAMES, ...THINGS].filter((name) => told.includes(name));
  const others = new Set([...plan.map((step) => step.about), ...named]);
  others.delete(about);
  return [...others];
}

/**
 * Answers that do not follow from the results: numbers near by and other numbers of the problem; for a coarse answer,
 * the other one.
 */
function otherAnswers(
  { problem, ending }: Pick<WordProblem, 'problem' | 'ending'>,
  given: string,
  results: readonly number[],
): string[] {
  if (ending.kind === 'who') return ending.names.filter((name) => name !== given);
  if (ending.kind === 'parity') return [ending.even, ending.odd].filter((word) => word !== given);
  if (ending.kind === 'limit') return [given === 'yes' ? 'no' : 'yes'];
  const value = Number(given);
  const told = (problem.match(/[0-9]+/g) ?? []).map(Number);
  const others = [
    ...[-10, -1, 1, 10].map((slip) => value + slip),
    swapped(value) ?? value,
    ...told,
    ...results,
  ];
  return [...new Set(others)].filter((other) => other >= 0 && other !== value).map(String);
}
