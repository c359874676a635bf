/** A calculator for problems with an answer: exact, so that every wrong answer is a wrong thought. */
import { grade } from '../answers/grade.js';
import { CALCULATOR, CALCULATOR_TOOL, computed } from '../data/equations/calculator.js';
import type { Message } from '../records/record.js';
import { type AgentTurn, type Environment, failure } from './environment.js';

/**
 * Answers calls of `calculator`. A task is a problem with its answer; a turn without a call ends the episode, with reward 1 where it says
 * the answer, else 0.
 */
export function calculatorEnvironment(): Environment {
  const answers = new Map<string, string>();
  return {
    tools: [CALCULATOR_TOOL],
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
    name !== CALCULATOR
      ? `there is no tool ${name}; there is ${CALCULATOR}`
      : typeof expression === 'string' || typeof expression === 'number'
        ? computed(String(expression))
        : 'expected {"expression": "…"}';
  return { role: 'tool', content, name, ...(id === undefined ? {} : { tool_call_id: id }) };
}
