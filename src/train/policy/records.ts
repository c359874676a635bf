/**
 * Online learning as a pipeline of typed records, with one interface per arrow:
 *
 *     items → groups of answers → rewards by token → advantages → update
 *        RolloutSource      RewardSource     Advantage   PolicyObjective
 *
 * PPO on verdicts, PPO on solutions, GRPO or RLOO differ only in what they plug in; `stage.ts` is the loop around them.
 * Records are plain data, so that a checkpoint can hold a rollout batch.
 */
import type { RewardPart } from '../../rewards/mixture.js';
import type { AdamW } from '../adamw.js';
import type { Metrics, StepPart } from '../stage.js';

/** One answer to a question. Arrays have one entry per token of the answer; log-probs are in nats. */
export interface Answer {
  readonly tokens: readonly number[];
  /** Log-probs of the policy before the update, from the training forward; empty where the update is to find them. */
  readonly oldLogprobs: readonly number[];
  /** Empty without a reference. */
  readonly refLogprobs: readonly number[];
  /** Outputs of the value head; empty without one. */
  readonly values: readonly number[];
  /** Log-probs of the sampler at the same temperature: `oldLogprobs` up to rounding. Empty if nothing was sampled. */
  readonly samplerLogprobs: readonly number[];
  /** Number of the server that sampled it, from 1. */
  readonly server?: number;
  /** Rollout batches that the policy learned from since the one that sampled it, where some are sampled ahead. */
  readonly staleness?: number;
}

/** The answers to one question. */
export interface Group<A extends Answer = Answer> {
  /** Index of the training item that the question belongs to; mini-batches keep an item whole. */
  readonly item: number;
  readonly answers: readonly A[];
}

/** The reward of an answer, in total and per token. */
export interface AnswerReward {
  readonly value: number;
  /** `value` without what length and form add, where they add something: groups with one outcome are drawn again. */
  readonly outcome?: number;
  readonly byToken: readonly number[];
  /** The tokens that carry the rewards of steps, ascending, where there are some. */
  readonly places?: readonly number[];
  /** The part of each token in `byToken` that an implicit reward model gave, where there is one. */
  readonly process?: readonly number[];
  /** The sources of a reward of the whole apart, in one order for all answers, where they are normalised apart. */
  readonly parts?: readonly RewardPart[];
  /** `byToken` before the KL penalty, where that is part of it. */
  readonly beforePenalty?: readonly number[];
  /** Value of each source, for logs. */
  readonly terms?: Readonly<Record<string, number>>;
}

/** Advantages and returns of an answer. */
export interface Credit {
  /** Reward of the whole answer, before the KL penalty. */
  readonly reward: number;
  /** Per token, KL penalty included if it is part of the reward. */
  readonly rewards: readonly number[];
  readonly advantages: readonly number[];
  readonly returns: readonly number[];
  /** Weight of the answer: 1 if sampled, its probability if enumerated. */
  readonly share: number;
  /** Factor of each token's policy loss, where the sampler's log-probs are corrected for. */
  readonly importance?: readonly number[];
  readonly terms?: AnswerReward['terms'];
}

export type CreditedGroup<G extends Group> = Omit<G, 'answers'> & {
  readonly item: number;
  readonly answers: readonly (G['answers'][number] & Credit)[];
};

/** One rollout batch: its items, its index, the signal that stops it, and who hears how far it is. */
export interface RolloutBatch {
  readonly items: readonly number[];
  readonly iteration: number;
  readonly signal: AbortSignal;
  /** The next batches, where they may be sampled meanwhile. */
  readonly ahead?: readonly Pick<RolloutBatch, 'items' | 'iteration'>[];
  readonly report?: ((part: StepPart) => void) | undefined;
}

export interface RolloutSource<G extends Group> {
  /** Answers of the policy, scored by policy and reference; undefined if the signal stopped it. */
  rollOut(batch: RolloutBatch): Promise<readonly G[] | undefined>;
  dispose?(): void;
}

/** State that a plug-in keeps between steps, as JSON for the checkpoint. */
export interface Keeps {
  state?(): unknown;
  restore?(state: unknown): void;
}

export interface RewardSource<G extends Group> extends Keeps {
  /** Optimizers of a source that learns, by their name in the checkpoint. */
  readonly optimizers?: Readonly<Record<string, AdamW>>;
  /** Rewards by group and answer; undefined if the signal stopped it. */
  reward(groups: readonly G[], batch: RolloutBatch): Promise<Rewards | undefined>;
  /** Trains the source on the rollout batch that it has just scored. `tokens` passed forward and backward. */
  learn?(batch: RolloutBatch): Promise<{ readonly metrics: Metrics; readonly tokens: number }>;
}

export interface Rewards {
  readonly byGroup: readonly (readonly AnswerReward[])[];
  readonly metrics: Metrics;
}

export interface Advantage<G extends Group> {
  /** @param rewards by group and answer; `byToken` includes the KL penalty if it is part of the reward */
  credit(
    groups: readonly G[],
    rewards: readonly (readonly AnswerReward[])[],
  ): Promise<readonly CreditedGroup<G>[]>;
}

export interface PolicyGradients<G extends Group = Group> {
  /** The groups with the log-probs that their rollout left out. */
  readonly scored?: readonly CreditedGroup<G>[];
  /** The loss that is minimised. */
  readonly loss: number;
  /** The terms of the loss by name; a step with a non-finite term is skipped. */
  readonly terms: Metrics;
  readonly metrics: Metrics;
  /** Values for the progress line. */
  readonly shown: Metrics;
  /** Tokens that passed forward and backward. */
  readonly tokens: number;
  /** The policy has moved too far from the one that sampled: leave out this step and the rest of the rollout batch. */
  readonly enough?: boolean;
  /** The policy's parameters and their optimizer stay unchanged: only the other parameters learn. */
  readonly policyWaits?: boolean;
}

/** An optimizer with a learning rate of its own. */
export interface OwnOptimizer {
  readonly optimizer: AdamW;
  readonly rateAt: (step: number) => number;
}

export interface PolicyObjective<G extends Group> extends Keeps {
  /** Optimizers of parameters other than the policy's, such as those of a critic, by their name in the checkpoint. */
  readonly optimizers?: Readonly<Record<string, OwnOptimizer>>;
  /** Forward and backward of a mini-batch; sets the policy's gradients. `step` counts the steps of the stage. */
  gradients(groups: readonly CreditedGroup<G>[], step: number): Promise<PolicyGradients<G>>;
  /** Called after every applied step. */
  applied?(gradients: PolicyGradients): void;
}
