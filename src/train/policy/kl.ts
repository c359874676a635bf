/** The KL penalty: where it goes, how it is estimated, and its coefficient, fixed or adapted to a target. */
import { exp } from '../../native/elementary.js';
import type { KlEstimator } from '../../objectives/ppo.js';
import type { Metrics } from '../stage.js';
import type { Answer, AnswerReward, Group } from './records.js';

export interface KlSettings {
  readonly kl_in: 'loss' | 'reward';
  readonly kl_coef: number;
  /** Estimator in the reward; default k1. */
  readonly kl_estimator?: KlEstimator | undefined;
  /** KL of an answer, in nats, that the coefficient is adapted to; 0 or absent: it is fixed. */
  readonly kl_target?: number | undefined;
  /** Answers over which it adapts. */
  readonly kl_horizon?: number | undefined;
}

/** An estimate of KL from d = log-prob − reference. */
export function klEstimate(d: number, estimator: KlEstimator): number {
  switch (estimator) {
    case 'k1':
      return d;
    case 'k2':
      return (d * d) / 2;
    case 'k3':
      return exp(-d) - 1 + d;
  }
}

/** Subtracts KL(policy ‖ reference), estimated by d = old − reference, from the reward of each token. */
export function withKlPenalty(
  { oldLogprobs, refLogprobs }: Pick<Answer, 'oldLogprobs' | 'refLogprobs'>,
  { byToken, ...reward }: AnswerReward,
  coefficient: number,
  estimator: KlEstimator = 'k1',
): AnswerReward {
  const penalty = (t: number) =>
    coefficient * klEstimate((oldLogprobs[t] as number) - (refLogprobs[t] as number), estimator);
  return { ...reward, byToken: byToken.map((value, t) => value - penalty(t)), beforePenalty: byToken };
}

/** The largest change of the coefficient per horizon, as a share of the error; arXiv 1909.08593, section 2.2. */
const LARGEST_ERROR = 0.2;

/** The coefficient of the penalty. It multiplies by 1 + clip(KL / target − 1, ±0.2) · answers / horizon after each rollout batch. */
export class KlControl {
  private current: number;

  constructor(private readonly settings: KlSettings) {
    this.current = settings.kl_coef;
  }

  /** Coefficient in the reward. */
  get inReward(): number {
    return this.settings.kl_in === 'reward' ? this.current : 0;
  }

  /** Coefficient in the loss. */
  get inLoss(): number {
    return this.settings.kl_in === 'loss' ? this.current : 0;
  }

  get estimator(): KlEstimator {
    return this.settings.kl_estimator ?? 'k1';
  }

  /** Adapts the coefficient to a rollout batch; empty where the answers have no reference, or no log-probs yet. */
  observe(groups: readonly Group[]): Metrics {
    const answers = groups
      .flatMap((group) => group.answers)
      .filter(({ oldLogprobs, refLogprobs }) => oldLogprobs.length > 0 && refLogprobs.length > 0);
    if (answers.length === 0) return {};
    const kl = answers.reduce((sum, answer) => sum + answerKl(answer), 0) / answers.length;
    const { kl_target: target = 0, kl_horizon: horizon = 1 } = this.settings;
    const used = this.current;
    if (target > 0) {
      const error = Math.max(-LARGEST_ERROR, Math.min(LARGEST_ERROR, kl / target - 1));
      // A batch larger than the horizon neither switches the penalty off for good nor lets it explode.
      this.current *= Math.min(2, Math.max(0.5, 1 + (error * answers.length) / horizon));
    }
    return { kl_answer: kl, ...(target > 0 ? { kl_coef: used } : {}) };
  }

  state(): unknown {
    return this.current;
  }

  restore(state: unknown): void {
    this.current = state as number;
  }
}

/** log π(answer) − log π_ref(answer), in nats. */
function answerKl({ oldLogprobs, refLogprobs }: Answer): number {
  return oldLogprobs.reduce((sum, logprob, t) => sum + logprob - (refLogprobs[t] as number), 0);
}
