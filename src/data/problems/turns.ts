/** Solutions of word problems as the turns of an agent that computes with a calculator. */
import type { Message, Step, StepRecord } from '../../records/record.js';
import { callsOf } from '../../records/turns.js';
import { CALCULATOR, CALCULATOR_TOOL, computed } from '../equations/calculator.js';
import { readLine } from './line.js';
import { errorName, type JudgedLine, judgeSolution } from './oracle.js';
import type { WordProblem } from './problem.js';
import type { Mistake } from './solution.js';

/** Whether somebody who computes with a calculator can make the mistake. */
export const isMadeWithCalculator = (mistake: Mistake): boolean =>
  mistake !== 'slip' && mistake !== 'swapped';

/** A turn that calls for the computation of a line, `Tom: 12 + 7 = 19`, or says the answer. */
export function turnOfLine(line: string): Pick<Step, 'text' | 'message' | 'results'> {
  const read = readLine(line);
  if (!read) return { text: line };
  const { about = '', left, op, right } = read;
  const expression = `${left} ${op} ${right}`;
  return {
    text: about,
    message: {
      tool_calls: [{ type: 'function', function: { name: CALCULATOR, arguments: { expression } } }],
    },
    results: [{ role: 'tool', name: CALCULATOR, content: computed(expression) }],
  };
}

/** The lines that a turn stands for: one for each call of the calculator, with its result, or what it says. */
export function linesOfTurn({
  text,
  message,
  results = [],
}: Pick<Step, 'text' | 'message' | 'results'>): string[] {
  const calls = callsOf(message);
  if (calls.length === 0) return [text.trim() === '' ? '(nothing)' : text.trim().replaceAll('\n', ' ')];
  return calls.map(({ name, arguments: given, id }, i) => {
    if (name !== CALCULATOR) return `(a call of ${name})`;
    const { expression = '' } = (given ?? {}) as { readonly expression?: unknown };
    const named = text.trim() === '' ? '' : `${text.trim().replace(/:$/, '')}: `;
    return `${named}${String(expression)} = ${resultOf(results, id, i)}`;
  });
}

function resultOf(results: readonly Message[], id: string | undefined, i: number): string {
  const own = results.find(({ tool_call_id: of }) => id !== undefined && of === id) ?? results[i];
  return own?.content.trim() ?? '';
}

/**
 * Judges turns as the lines that they stand for; a turn is right if all of its lines are.
 *
 * @returns a verdict for each turn, with the first wrong line of a wrong one
 */
export function judgeTurns(
  problem: Pick<WordProblem, 'plan' | 'ending' | 'answer'>,
  turns: readonly Pick<Step, 'text' | 'message' | 'results'>[],
): { readonly right: boolean; readonly line: JudgedLine }[] {
  const lines = turns.map(linesOfTurn);
  const judged = judgeSolution(problem, lines.flat()).lines;
  let next = 0;
  return lines.map((own) => {
    const found = judged.slice(next, next + own.length);
    next += own.length;
    const line = found.find(({ right }) => !right) ?? (found[0] as JudgedLine);
    return { right: line.right, line };
  });
}

/** A solution as a conversation: a turn for each line, with what the calculator answers, labelled by the oracle. */
export function turnRecord(problem: WordProblem, lines: readonly string[]): StepRecord {
  const turns = lines.map(turnOfLine);
  const judged = judgeTurns(problem, turns);
  return {
    problem: problem.problem,
    prompt: [{ role: 'user', content: problem.problem }],
    tools: [CALCULATOR_TOOL],
    gold_answer: problem.answer,
    steps: turns.map((turn, i): Step => {
      const { right, line } = judged[i] as (typeof judged)[number];
      const error = errorName(line);
      return {
        ...turn,
        label: right ? 1 : 0,
        ...(error === undefined ? {} : { error }),
        kind: 'normal',
      };
    }),
    turns: true,
    outcome: judged.at(-1)?.right ? 1 : 0,
  };
}
