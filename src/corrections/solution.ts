/** A right solution, from which samples with corrections are made. */
import type { WordProblem } from '../data/problems/problem.js';
import { splitOutside } from '../records/mathematics.js';
import type { StepRecord } from '../records/record.js';
import { folded } from '../records/same-text.js';
import { refuseTurns } from '../records/turns.js';

export interface SourceSolution {
  /** Its number in the source, from 0; it keys the random numbers of its samples. */
  readonly number: number;
  readonly problem: string;
  /** The last one gives the answer. */
  readonly steps: readonly string[];
  readonly answer: string;
  readonly record: StepRecord;
  /** Everything that the oracle of a generated problem needs. */
  readonly word?: WordProblem;
}

const ANSWER = /^(?:####|the (?:final )?answer is\b|answer\s*:)/i;

/**
 * The steps of a worked solution: its lines, or its sentences where it is one line. GSM8K's notes for calculators are left out, and a line `#### 72` becomes `The answer is: 72`
 * unless such a line follows it, as in MetaMathQA. A formula is never cut, and stands on one line, as steps do.
 */
export function solutionSteps(text: string): string[] {
  const lines = splitOutside(text.replace(/<<[^<>\n]*>>/g, ''), /\n/g)
    .map((line) =>
      line
        .split('\n')
        .map((part) => part.trim())
        .join(' ')
        .trim(),
    )
    .filter((line) => line !== '');
  const marked = lines.flatMap((line, i) => {
    if (!line.startsWith('####')) return [line];
    const isSaidAgain = lines.slice(i + 1).some((later) => ANSWER.test(later));
    return isSaidAgain ? [] : [`The answer is: ${line.replace(/^#+\s*/, '')}`];
  });
  const worked = marked.filter((line) => !ANSWER.test(line));
  if (worked.length > 1) return marked;
  return marked.flatMap((line) => (ANSWER.test(line) ? [line] : sentences(line)));
}

/** A full stop inside a number or a formula ends no sentence. */
function sentences(line: string): string[] {
  return splitOutside(line, /(?<=[.!?]["')\]$]?)\s+(?=["'(\\$]?[A-Z0-9])/gu);
}

/**
 * The solution of a record, or the reason why it has none that can be used.
 *
 * @param word the generated problem of the record, if it is one
 */
export function sourceSolution(
  record: StepRecord,
  number: number,
  word?: WordProblem,
): SourceSolution | 'no_answer' | 'no_solution' | 'wrong_solution' {
  refuseTurns(record, 'corrections are made of solutions');
  const { problem, gold_answer: answer, gold_solution: solution } = record;
  if (answer === undefined) return 'no_answer';
  if (record.outcome === 0 && solution === undefined) return 'wrong_solution';
  const own = record.steps.map(({ text }) => text);
  const steps = word || solution === undefined ? (solution?.split('\n') ?? own) : solutionSteps(solution);
  if (steps.length < 2) return 'no_solution';
  return { number, problem, steps, answer, record, ...(word ? { word } : {}) };
}

/** A step in the form in which two count as the same: compatibility-normalised, lower case, without white space and final stops. */
export function normalisedStep(step: string): string {
  return folded(step)
    .replace(/\s+/gu, '')
    .replace(/[.,;:]+$/u, '');
}

/** The last number of a text, without commas between thousands. */
export function lastNumber(text: string): string | undefined {
  const found = text
    .replaceAll('−', '-')
    .match(/-?\d+(?:,\d{3})*(?:\.\d+)?/g)
    ?.at(-1)
    ?.replaceAll(',', '');
  return found === undefined ? undefined : String(Number(found));
}

const NUMBERING = /^\s*(?:step\s+)?\d+\s*[:.)]\s+/i;

/** A step without what numbers it, `2: ` or `Step 2. `. */
export function withoutNumber(step: string): string {
  return step.replace(NUMBERING, '');
}

/** The last number of a step; the one that numbers the step itself (`2: Ann`, `Step 2. …`) is no result. */
export function stepResult(step: string): string | undefined {
  return lastNumber(withoutNumber(step));
}
