/** Rewards without a model: a right answer, a form and a length of the text, and what an environment gave. */
import { extractAnswer, isMarked } from '../answers/extract.js';
import { type GradeOptions, grade } from '../answers/grade.js';
import { badOption } from '../files/data-error.js';
import type { RewardedSolution, SolutionReward } from './reward.js';

/** 1 where the final answer is that of the problem, else 0, as of a solution that was cut off; see `grade`. */
export function answerReward(options: GradeOptions = {}): SolutionReward {
  return {
    name: 'rule',
    score: async (solutions) =>
      solutions.map(({ text, problem, truncated, opened = '' }) => ({
        value: grade(text, problem.answer, { inReasoning: opened !== '', ...options, ended: !truncated })
          .correct
          ? 1
          : 0,
      })),
  };
}

/**
 * 1 where the text has the form that is asked for, else 0.
 *
 * @param pattern a regular expression for some part of the text, with the mark of reasoning that the prompt opened before it; absent:
 *   the text says its answer in a box, behind `####` or in words
 * @throws DataError for an invalid pattern
 */
export function formatReward(pattern?: string): SolutionReward {
  const form = pattern === undefined ? undefined : compiled(pattern);
  const has = ({ text, opened = '' }: RewardedSolution) => {
    if (form) return form.test(text.startsWith(opened) ? text : opened + text);
    const method = extractAnswer(text, { inReasoning: opened !== '' })?.method;
    return isMarked(method);
  };
  return {
    name: 'format',
    isShape: true,
    score: async (solutions) => solutions.map((solution) => ({ value: has(solution) ? 1 : 0 })),
  };
}

function compiled(pattern: string): RegExp {
  try {
    return new RegExp(pattern, 'su');
  } catch (error) {
    throw badOption(`reward.format.pattern is no regular expression: ${(error as Error).message}`);
  }
}

/** 0 up to `from` tokens, from there falling evenly to −1 at `to` tokens: the soft punishment of arXiv 2503.14476. */
export function lengthReward({ from, to }: { readonly from: number; readonly to: number }): SolutionReward {
  return {
    name: 'length',
    isShape: true,
    score: async (solutions) =>
      solutions.map(({ tokens }) => ({
        value: -Math.min(1, Math.max(0, tokens - from) / Math.max(1, to - from)),
      })),
  };
}

/** Gives the rewards that the environment of an episode gave its turns, and their sum. A turn without one has 0. */
export function environmentReward(): SolutionReward {
  return {
    name: 'environment',
    score: async (solutions) =>
      solutions.map(({ turnRewards = [] }) => {
        const steps = turnRewards.map((reward) => reward ?? 0);
        return { value: steps.reduce((sum, reward) => sum + reward, 0), steps };
      }),
  };
}
