// The request for a language model that judges the steps of a solution, and the schema of its answer.
import { attempt } from '../../native/attempt.js';
import { readableResults, readableStep } from '../../records/turns.js';
import type { ChatMessage } from '../../tokenizer/tokenizer.js';
import { isJsonObject, type JsonValue, parseJson } from '../../weights/json.js';
import type { Solution } from '../scorer.js';

const INSTRUCTIONS = `You check solutions of mathematical problems step by step.
Judge every numbered step by itself, given the problem and the steps before it:
- "correct": what it says and computes holds and is of use; another way than that of the reference solution is correct if it is valid.
- "incorrect": it has an error, or it builds on an error of an earlier step.
The reference solution, where there is one, is right. It is for you alone: a step need not look like it.
Answer with one JSON object and nothing else, with each step's number as key: {"1": "correct", "2": "incorrect"}`;

const OF_TURNS = `You check the turns of an agent that uses tools.
Judge every numbered turn by itself, given the task and all before it. A line that begins with → is a call of a tool, one with ← is what came back for the turn.
- "correct": what it says holds, and its calls are of use for the task; another way than your own is correct if it is valid.
- "incorrect": it has an error, it builds on an error of an earlier turn, or it does not help.
What came back is no part of the turn: a call that is of use stays correct if its result is of none.
Answer with one JSON object and nothing else, with each turn's number as key: {"1": "correct", "2": "incorrect"}`;

/**
 * The request for all steps of one solution, or all turns of a conversation. It shows the reference solution or the right answer if
 * one is known.
 *
 * @param rubric what else counts, in words
 */
export function judgePrompt(
  { problem, of, steps, turns }: Solution,
  rubric?: string,
): readonly ChatMessage[] {
  const { answer = '', solution } = of ?? {};
  const shown = turns
    ? turns.steps.map((turn) => [readableStep(turn), ...readableResults(turn)].join('\n'))
    : steps;
  const numbered = shown.map((step, i) => `${i + 1}. ${step}`).join('\n');
  const known = answer === '' ? '' : `The right answer: ${answer}\n\n`;
  const reference = solution === undefined ? known : `Reference solution:\n${solution}\n\n`;
  return [
    {
      role: 'system',
      content: `${turns ? OF_TURNS : INSTRUCTIONS}${rubric === undefined ? '' : `\n\nRubric:\n${rubric}`}`,
    },
    {
      role: 'user',
      content: `${turns ? 'Task' : 'Problem'}:\n${problem}\n\n${reference}${turns ? 'Turns' : 'Steps'} to judge:\n${numbered}`,
    },
  ];
}

const LABELS: ReadonlyMap<JsonValue | undefined, 0 | 1> = new Map([
  ['correct', 1],
  ['incorrect', 0],
]);

/**
 * The labels of an answer: strictly one JSON object with one label for every step and nothing else; undefined for any other text, also
 * for one that judges a step twice.
 */
export function parseLabels(text: string, steps: number): (0 | 1)[] | undefined {
  const fenced = /^\s*```(?:json)?\s*([\s\S]*?)```\s*$/.exec(text);
  const value = attempt(() => parseJson(fenced?.[1] ?? text, 'the answer'));
  if (!isJsonObject(value) || Object.keys(value).length !== steps) return undefined;
  const labels: (0 | 1)[] = [];
  for (let i = 1; i <= steps; i++) {
    const label = LABELS.get(value[i]);
    if (label === undefined) return undefined;
    labels.push(label);
  }
  return labels;
}
