/** Says of every line of a solution whether it is right, and of a wrong one in which way. */
import { answersEqual } from '../../answers/equal.js';
import { extractAnswer } from '../../answers/extract.js';
import type { StepRecord } from '../../records/record.js';
import { statesAnswer } from '../label-rules.js';
import { evaluate } from './facts.js';
import { type Line, readLine } from './line.js';
import { answerFrom, type PlannedStep, type WordProblem } from './problem.js';

/**
 * The error of a line.
 * - `slip`: the right computation with a wrong result
 * - `operation`: the right numbers with another operation
 * - `dropped`: continues from an earlier quantity, so that a number is left out
 * - `copied`: another number than the one that belongs there
 * - `carried`: right in itself, but based on a wrong line
 * - `quantity`: computed under the name of another quantity
 * - `repeated`: repeats an earlier line
 * - `other`: nothing that the problem needs
 * - `answer`: neither the answer nor the result of the lines before it
 * - `unreadable`: neither a computation nor an answer
 */
export type StepError =
  | 'slip'
  | 'operation'
  | 'dropped'
  | 'copied'
  | 'carried'
  | 'quantity'
  | 'repeated'
  | 'other'
  | 'answer'
  | 'unreadable';

export interface JudgedLine {
  readonly text: string;
  readonly right: boolean;
  /** Error of a wrong line. */
  readonly error?: StepError;
  /** Index in the plan of the step that the line is or was meant to be, where that is known. */
  readonly step?: number;
}

export interface JudgedSolution {
  readonly lines: readonly JudgedLine[];
  /** Undefined where the solution gives none. */
  readonly answer: string | undefined;
  readonly isAnswerRight: boolean;
  /** Steps of the plan without a right line. */
  readonly missing: readonly number[];
}

export const ANSWER = /^\s*answer\s*:/i;

/**
 * Judges a solution by the plan of its problem: a line is right if quantity, operation and result are those of a step that
 * is not done yet, in any order; a sum or product also with its operands exchanged. A line without a quantity may be any.
 *
 * @param lines the text of each step, without line breaks; empty ones are left out
 */
export function judgeSolution(
  problem: Pick<WordProblem, 'plan' | 'ending' | 'answer'>,
  lines: readonly string[],
): JudgedSolution {
  const reader = new SolutionReader(problem);
  const judged = lines.filter((text) => text.trim() !== '').map((text) => reader.line(text));
  return { lines: judged, ...reader.end() };
}

/** Judges a text of one line per step. */
export function judgeText(
  problem: Pick<WordProblem, 'plan' | 'ending' | 'answer'>,
  text: string,
): JudgedSolution {
  return judgeSolution(problem, text.split('\n'));
}

/** Whether a text gives the problem's answer: the answer oracle. */
export function isRightAnswer({ answer }: Pick<WordProblem, 'answer'>, text: string): boolean {
  // The form that the solutions use needs no search.
  const said = ANSWER.test(text) ? text.replace(ANSWER, '').trim() : undefined;
  if (said !== undefined && PLAIN.test(said)) return isSameAnswer(said, answer);
  const found = extractAnswer(text)?.answer;
  return found !== undefined && isSameAnswer(found, answer);
}

const PLAIN = /^(?:\d+|[A-Za-z]+)$/;

/** Numbers and words are compared as they stand; anything else as answers are. */
function isSameAnswer(got: string, expected: string): boolean {
  if (PLAIN.test(got) && PLAIN.test(expected)) {
    const isNumber = /^\d/.test(got) && /^\d/.test(expected);
    return isNumber ? Number(got) === Number(expected) : got.toLowerCase() === expected.toLowerCase();
  }
  return answersEqual(got, expected).equal;
}

class SolutionReader {
  /** The step has a right line. */
  private readonly done = new Set<number>();
  /** Results as the solution has them, right or wrong. */
  private readonly results: (number | undefined)[];
  private answer: string | undefined;
  private answerRight = false;

  constructor(private readonly problem: Pick<WordProblem, 'plan' | 'ending' | 'answer'>) {
    this.results = problem.plan.map(() => undefined);
  }

  line(text: string): JudgedLine {
    if (ANSWER.test(text)) return this.answerLine(text);
    const line = readLine(text);
    if (line === undefined) return { text, right: false, error: 'unreadable' };
    const { step, error } = this.compare(line);
    if (step !== undefined && error !== 'repeated') {
      this.results[step] = line.result;
      if (error === undefined) this.done.add(step);
    }
    return {
      text,
      right: error === undefined,
      ...(error ? { error } : {}),
      ...(step === undefined ? {} : { step }),
    };
  }

  end(): Pick<JudgedSolution, 'answer' | 'isAnswerRight' | 'missing'> {
    const missing = this.problem.plan.flatMap((_, i) => (this.done.has(i) ? [] : [i]));
    return { answer: this.answer, isAnswerRight: this.answerRight, missing };
  }

  private answerLine(text: string): JudgedLine {
    const { plan, ending, answer } = this.problem;
    this.answer = text.replace(ANSWER, '').trim();
    this.answerRight = isRightAnswer({ answer }, text);
    if (this.answerRight) return { text, right: true };
    const results = plan.map(({ result }, i) => this.results[i] ?? result);
    const follows = isSameAnswer(this.answer, answerFrom(ending, results));
    return { text, right: false, error: follows ? 'carried' : 'answer' };
  }

  private compare(line: Line): { readonly step?: number; readonly error?: StepError } {
    const { plan } = this.problem;
    const open = plan.flatMap((_, i) => (this.done.has(i) ? [] : [i]));
    const named = open.filter(
      (i) => line.about === undefined || line.about === (plan[i] as PlannedStep).about,
    );
    const find = (steps: readonly number[], holds: (step: PlannedStep) => boolean) =>
      steps.find((i) => holds(plan[i] as PlannedStep));
    const isRight = (step: PlannedStep) =>
      line.op === step.op && line.result === step.result && this.hasOperands(line, step);

    const right = find(named, isRight);
    if (right !== undefined) return { step: right };
    const repeated = find([...this.done], isRight);
    if (repeated !== undefined && find(open, isRight) === undefined)
      return { step: repeated, error: 'repeated' };
    const elsewhere = find(open, isRight);
    if (elsewhere !== undefined) return { step: elsewhere, error: 'quantity' };

    // Named steps come first: a line is most likely the step that it is named after.
    const order = [...named, ...open.filter((i) => !named.includes(i))];
    const slip = find(order, (step) => line.op === step.op && this.hasOperands(line, step));
    if (slip !== undefined) return { step: slip, error: 'slip' };
    const carried = find(order, (step) => line.op === step.op && this.hasOperands(line, step, 'written'));
    if (carried !== undefined)
      return { step: carried, error: line.result === evaluate(line) ? 'carried' : 'slip' };
    const operation = find(
      order,
      (step) =>
        line.op !== step.op &&
        (this.hasOperands(line, step, 'either') || this.hasOperands(line, step, 'written')),
    );
    if (operation !== undefined) return { step: operation, error: 'operation' };
    const dropped = find(named, (step) => line.op === step.op && this.isStale(line, step));
    if (dropped !== undefined) return { step: dropped, error: 'dropped' };
    const copied = find(named, (step) => line.op === step.op && this.hasOneOperand(line, step));
    if (copied !== undefined) return { step: copied, error: 'copied' };
    return { error: 'other' };
  }

  /** The operands of a step: as they should be, or as the lines before have them. */
  private operands({ left, right }: PlannedStep, as: 'planned' | 'written'): [number, number] {
    const numberOf = ({ value, step }: PlannedStep['left']) =>
      as === 'planned' || step === undefined ? value : (this.results[step] ?? value);
    return [numberOf(left), numberOf(right)];
  }

  /** `either`: in either order, whatever the operation. */
  private hasOperands(
    line: Line,
    step: PlannedStep,
    as: 'planned' | 'written' | 'either' = 'planned',
  ): boolean {
    const [left, right] = this.operands(step, as === 'written' ? 'written' : 'planned');
    if (line.left === left && line.right === right) return true;
    const exchanges = step.op === '+' || step.op === '×' || as === 'either';
    return exchanges && line.left === right && line.right === left;
  }

  /** One operand is right, and in place of the other is something that it is computed from. */
  private isStale(line: Line, step: PlannedStep): boolean {
    const [left, right] = this.operands(step, 'written');
    const olderLeft = this.sources(step.left.step);
    const olderRight = this.sources(step.right.step);
    return (
      (line.right === right && olderLeft.has(line.left)) || (line.left === left && olderRight.has(line.right))
    );
  }

  /** Everything that the result of a step is computed from, as far as it goes. */
  private sources(step: number | undefined): Set<number> {
    const found = new Set<number>();
    const visit = (at: number | undefined) => {
      if (at === undefined) return;
      const planned = this.problem.plan[at] as PlannedStep;
      for (const value of [...this.operands(planned, 'planned'), ...this.operands(planned, 'written')])
        found.add(value);
      visit(planned.left.step);
      visit(planned.right.step);
    };
    visit(step);
    return found;
  }

  private hasOneOperand(line: Line, step: PlannedStep): boolean {
    return (['planned', 'written'] as const).some((as) => {
      const operands = this.operands(step, as);
      return operands.includes(line.left) || operands.includes(line.right);
    });
  }
}

const ERROR_NAMES: Readonly<Record<Exclude<StepError, 'slip' | 'carried'>, string>> = {
  operation: 'another operation',
  dropped: 'number left out',
  copied: 'another number',
  quantity: 'another quantity',
  repeated: 'repeated',
  other: 'not needed',
  answer: 'wrong answer',
  unreadable: 'unreadable',
};

/** The name of a line's error in the table of an evaluation; undefined for a right line. */
export function errorName({ text, error }: JudgedLine): string | undefined {
  if (error === undefined) return undefined;
  if (error === 'carried') return ANSWER.test(text) ? 'answer carried on' : 'carried on';
  return error === 'slip' ? slipName(text) : ERROR_NAMES[error];
}

function slipName(text: string): string {
  const line = readLine(text);
  const right = line && evaluate(line);
  if (line === undefined || right === undefined) return 'other slip';
  const by = Math.abs(line.result - right);
  if (by === 1 || by === 10) return `slip of ${by}`;
  const isSwapped = String(right) === [...String(line.result)].reverse().join('');
  return isSwapped ? 'digits swapped' : 'other slip';
}

/** The `solutionRecord` of a model's lines. A solution that was cut off has no outcome, so that no model learns it as wrong. */
export function oracleRecord(
  problem: WordProblem,
  lines: readonly string[],
  { cutOff = false } = {},
): StepRecord {
  const judged = judgeSolution(problem, lines);
  return {
    problem: problem.problem,
    gold_answer: problem.answer,
    steps: judged.lines.map(({ text, right }) => ({ text, label: right ? 1 : 0, kind: 'normal' })),
    ...(!cutOff && statesAnswer(lines.at(-1) ?? '') ? { outcome: judged.isAnswerRight ? 1 : 0 } : {}),
  };
}
