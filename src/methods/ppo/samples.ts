/** Metrics of the solutions of a rollout batch, and samples of them to read. */
import { stepsOf } from '../../records/steps.js';
import { readableResults, readableStep } from '../../records/turns.js';
import type { Credit } from '../../train/policy/records.js';
import type { RunProblem } from '../../train/solutions/problems.js';
import type { SolutionTurns } from '../../train/solutions/solution-source.js';
import type { Metrics } from '../../train/stage.js';
import type { CreditedSolutions } from './rollout.js';

/** Lengths, and how many groups have nothing to compare. */
export function solutionMetrics(groups: readonly CreditedSolutions[]): Metrics {
  const answers = groups.flatMap((group) => group.answers);
  if (answers.length === 0) return {};
  const equal = groups.filter(({ answers: own }) => own.every(({ reward }) => reward === own[0]?.reward));
  const repeated = answers.reduce((sum, { text }) => {
    const steps = stepsOf(text);
    return sum + (steps.length === 0 ? 0 : 1 - new Set(steps).size / steps.length);
  }, 0);
  return {
    solutions: answers.length,
    solution_tokens: answers.reduce((sum, { tokens }) => sum + tokens.length, 0) / answers.length,
    equal_groups: equal.length / groups.length,
    repeated_steps: repeated / answers.length,
  };
}

/** Rollouts to read: the first few problems of an iteration, with all their solutions. */
const SHOWN_PROBLEMS = 2;

export function* solutionSamples(
  groups: readonly CreditedSolutions[],
  problems: readonly RunProblem[],
  iteration: number,
): Generator<Record<string, unknown>> {
  for (const { item, answers } of groups.slice(0, SHOWN_PROBLEMS)) {
    const { problem, answer, group } = problems[item] as RunProblem;
    yield {
      iteration,
      problem,
      answer,
      ...(group === undefined ? {} : { group }),
      solutions: answers.map((own) => ({
        text: own.turns ? transcript(own.turns) : own.text,
        ...(own.turns ? { turn_rewards: own.turns.rewards, turns: shownTurns(own.turns, own) } : {}),
        tokens: own.tokens.length,
        truncated: own.truncated,
        reward: own.reward,
        terms: own.terms,
        rewards: placedRewards(own.rewards),
        logprob: own.oldLogprobs.reduce((sum, logprob) => sum + logprob, 0),
        // Steps and critics give each token its own.
        ...(own.advantages.every((advantage) => advantage === own.advantages[0])
          ? { advantage: own.advantages[0] }
          : {}),
      })),
    };
  }
}

/** The turns of an episode to read, with what came back for each. */
function transcript({ conversation: { steps } }: SolutionTurns): string {
  return steps.flatMap((step) => [readableStep(step), ...readableResults(step)]).join('\n');
}

/** Each turn with what came back for it, the rewards of its tokens by all sources, and the advantage of its last token. */
function shownTurns(
  { conversation: { steps }, ends }: SolutionTurns,
  { rewards, advantages }: Pick<Credit, 'rewards' | 'advantages'>,
) {
  return steps.map((step, k) => {
    const own = rewards.slice(k === 0 ? 0 : (ends[k - 1] as number) + 1, (ends[k] as number) + 1);
    return {
      text: readableStep(step),
      results: readableResults(step),
      reward: own.reduce((sum, reward) => sum + reward, 0),
      advantage: advantages[ends[k] as number],
    };
  });
}

/** Rewards by token, without zeros. With the KL penalty every token has a reward, so all are kept. */
function placedRewards(rewards: readonly number[]): Record<string, number> | readonly number[] {
  const placed = rewards.flatMap((reward, t) => (reward === 0 ? [] : [[String(t), reward] as const]));
  return placed.length > rewards.length / 2 ? rewards : Object.fromEntries(placed);
}
