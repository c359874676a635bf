/** Teachers: they write the error of a step, and the step that should replace it. */
import { judgeSolution, type StepError } from '../data/problems/oracle.js';
import type { WordProblem } from '../data/problems/problem.js';
import type { HeldOutStep } from './evaluation/prefixes.js';

/** A wrong step in its place. */
export interface WrongStep extends HeldOutStep {
  /** Whether the right step is the solution's last. */
  readonly isLast: boolean;
  readonly word?: WordProblem;
}

export interface Correction {
  readonly reflection: string;
  readonly improvement: string;
}

/** Reasons why a teacher's answer cannot be used. */
export type TeacherFailure = 'unreadable' | 'unanswered';

export interface Teacher {
  readonly name: string;
  /** The teacher's correction of each wrong step, or the reason for none. Undefined if the signal stopped it. */
  correct(
    steps: readonly WrongStep[],
    signal?: AbortSignal,
  ): Promise<readonly (Correction | TeacherFailure)[] | undefined>;
}

/** No teacher: one sentence for all errors, and the right step itself. The cheapest way, and the weakest reflection. */
export function plainTeacher(): Teacher {
  return {
    name: 'plain',
    correct: async (steps) =>
      steps.map(({ right }) => ({ reflection: 'this does not follow.', improvement: right })),
  };
}

const REMARKS: Readonly<Record<Exclude<StepError, 'slip'>, string>> = {
  operation: 'the operation is wrong.',
  dropped: 'a step is left out.',
  copied: 'a number is wrong.',
  carried: 'it goes on from an error.',
  quantity: 'this is not what is computed.',
  repeated: 'this was there already.',
  other: 'this is not what is needed.',
  answer: 'this is not the answer.',
  unreadable: 'this is no step.',
};

/** The exact oracle of generated problems: it names the error. Other problems get the remark of `plainTeacher`. */
export function oracleTeacher(): Teacher {
  return {
    name: 'oracle',
    correct: async (steps) =>
      steps.map(({ word, before, wrong, right }) => ({
        reflection: word ? remarkOf(stepErrorOf(word, before, wrong), wrong) : 'this does not follow.',
        improvement: right,
      })),
  };
}

/** The error that the oracle finds in a step after right ones; undefined where it is right. */
export function stepErrorOf(
  word: WordProblem,
  before: readonly string[],
  step: string,
): StepError | undefined {
  return judgeSolution(word, [...before, step]).lines.at(-1)?.error;
}

function remarkOf(error: StepError | undefined, wrong: string): string {
  if (error === undefined) return 'this does not follow.';
  if (error !== 'slip') return REMARKS[error];
  const [computed, result] = (wrong.split(': ').at(-1) as string).split(' = ');
  return result === undefined ? 'the result is wrong.' : `${computed} is not ${result}.`;
}
