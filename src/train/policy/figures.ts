/** What is logged of a rollout batch. */
import { ratio } from '../../eval/metrics.js';
import type { VerdictScores } from '../reward/score.js';
import type { CreditedQuestion } from './credit.js';

/**
 * Rewards, how often the sampled answer was right, how well values foretold returns, and how far sampler and training
 * forward are apart.
 *
 * @param scores of the reward network, by question; undefined without one
 */
export function describeRollout(
  questions: readonly CreditedQuestion[],
  scores: readonly (VerdictScores | undefined)[],
): Record<string, number> {
  const answers = questions.flatMap(({ answers, label }) => answers.map((answer) => ({ ...answer, label })));
  if (answers.length === 0) return {};
  const rewards = answers.map(({ reward, share }) => ({ value: reward, weight: share }));
  const reward = moments(rewards);
  const counted = (label: 1 | 0) => answers.filter((answer) => answer.label === label);
  const right = (label: 1 | 0) => {
    const own = counted(label);
    const mass = own.reduce((sum, { share }) => sum + share, 0);
    const hits = own.reduce((sum, { share, verdict }) => sum + (verdict === label ? share : 0), 0);
    return ratio(hits, mass);
  };
  const returns = answers.flatMap((answer) => answer.returns);
  const values = answers.flatMap((answer) => answer.values);
  const drift = answers.flatMap(({ samplerLogprobs, oldLogprobs }) =>
    samplerLogprobs.map((logprob, t) => Math.abs(logprob - (oldLogprobs[t] as number))),
  );
  const compared = scores.flatMap((found, i) => {
    const label = (questions[i] as CreditedQuestion).label;
    return found ? [(label === 1 ? 1 : -1) * (found.positive - found.negative)] : [];
  });
  return {
    rollout_verdicts: questions.length,
    rollout_acc_pos: right(1),
    rollout_acc_neg: right(0),
    rollout_invalid: ratio(answers.filter(({ verdict }) => verdict === undefined).length, answers.length),
    reward_mean: reward.mean,
    reward_std: Math.sqrt(reward.variance),
    reward_min: Math.min(...rewards.map(({ value }) => value)),
    reward_max: Math.max(...rewards.map(({ value }) => value)),
    ...(compared.length > 0
      ? {
          reward_margin: mean(compared),
          reward_accuracy: ratio(compared.filter((margin) => margin > 0).length, compared.length),
        }
      : {}),
    value_mean: mean(values),
    explained_variance: explainedVariance(values, returns),
    ...(drift.length > 0 ? { sampler_difference: mean(drift) } : {}),
  };
}

/** 1 − Var(returns − values) / Var(returns); 0 where the returns are all equal. */
export function explainedVariance(values: readonly number[], returns: readonly number[]): number {
  const total = moments(returns.map((value) => ({ value, weight: 1 }))).variance;
  const left = moments(returns.map((value, i) => ({ value: value - (values[i] as number), weight: 1 })));
  return total === 0 ? 0 : 1 - left.variance / total;
}

function moments(items: readonly { readonly value: number; readonly weight: number }[]) {
  const mass = items.reduce((sum, { weight }) => sum + weight, 0);
  const average = ratio(
    items.reduce((sum, { value, weight }) => sum + weight * value, 0),
    mass,
  );
  const squares = items.reduce((sum, { value, weight }) => sum + weight * (value - average) ** 2, 0);
  return { mean: average, variance: ratio(squares, mass) };
}

function mean(values: readonly number[]): number {
  return ratio(
    values.reduce((sum, value) => sum + value, 0),
    values.length,
  );
}
