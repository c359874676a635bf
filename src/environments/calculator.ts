/** A calculator for problems with an answer: exact, so that every wrong answer is a wrong thought. */
import { grade } from '../answers/grade.js';
import type { Rational } from '../answers/rational.js';
import { exactValue, partsOf } from '../data/equations/expression.js';
import type { Message } from '../records/record.js';
import { type AgentTurn, type Environment, failure } from './environment.js';

const NAME = 'calculator';

const TOOL = {
  type: 'function',
  function: {
    name: NAME,
    description: 'Computes an expression of numbers, + - * / ^ and brackets, exactly.',
    parameters: {
      type: 'object',
      properties: { expression: { type: 'string', description: 'such as (12 + 7) / 2' } },
      required: ['expression'],
    },
  },
};

/**
 * Answers calls of `calculator`. A task is a problem with its answer; a turn without a call ends the episode, with reward 1 where it says
 * the answer, else 0.
 */
export function calculatorEnvironment(): Environment {
  const answers = new Map<string, string>();
  return {
    tools: [TOOL],
    reset({ problem, answer }, episode) {
      if (typeof problem !== 'string' || (typeof answer !== 'string' && typeof answer !== 'number'))
        throw failure('the calculator needs a task with problem and answer');
      answers.set(episode, String(answer));
      return { messages: [{ role: 'user', content: problem }] };
    },
    step({ text, calls }, episode) {
      if (calls.length > 0) return { messages: calls.map(resultOf), done: false };
      return { done: true, reward: grade(text, answers.get(episode) ?? '').correct ? 1 : 0 };
    },
    close: (episode) => void answers.delete(episode),
  };
}

function resultOf({ id, name, arguments: given }: AgentTurn['calls'][number]): Message {
  const { expression } = (given ?? {}) as { expression?: unknown };
  const content =
    name !== NAME
      ? `there is no tool ${name}; there is ${NAME}`
      : typeof expression === 'string' || typeof expression === 'number'
        ? computed(String(expression))
        : 'expected {"expression": "…"}';
  return { role: 'tool', content, name, ...(id === undefined ? {} : { tool_call_id: id }) };
}

/** The value of an expression as a decimal or, where that does not end, as a fraction; else a sentence. */
export function computed(expression: string): string {
  // Words would count for nothing, and a calculator that passes over them would compute something else.
  if (!/^[\d\s.,+\-*/^()×÷−]+$/.test(expression))
    return `cannot compute ${JSON.stringify(expression.slice(0, 60))}: expected numbers, + - * / ^ and brackets`;
  const value = exactValue(partsOf(expression));
  return value === undefined ? `cannot compute ${JSON.stringify(expression.slice(0, 60))}` : decimal(value);
}

function decimal({ over, under }: Rational): string {
  let [twos, fives, rest] = [0, 0, under];
  for (; rest % 2n === 0n; rest /= 2n) twos++;
  for (; rest % 5n === 0n; rest /= 5n) fives++;
  if (rest !== 1n) return `${over}/${under}`;
  const places = Math.max(twos, fives);
  const digits = `${(over < 0n ? -over : over) * (10n ** BigInt(places) / under)}`.padStart(places + 1, '0');
  const text = places === 0 ? digits : `${digits.slice(0, -places)}.${digits.slice(-places)}`;
  return `${over < 0n ? '-' : ''}${text}`;
}
