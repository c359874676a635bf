/**
 * Online learning is one way through typed records, an interface for each arrow:
 *
 *     items → groups of answers → rewards by token → advantages → update
 *        RolloutSource      RewardSource     Advantage   PolicyObjective
 *
 * PPO on verdicts, PPO on solutions, GRPO or RLOO differ only in what they plug in; `stage.ts` is the loop around them.
 * Records are plain data, so that a checkpoint can hold a rollout batch.
 */
import type { AdamW } from '../adamw.js';
import type { Metrics } from '../stage.js';

/** What was answered to one question. Arrays are by token of the answer, log-probs in nats. */
export interface Answer {
  readonly tokens: readonly number[];
  /** Of the policy before the update, as the training forward computes them. */
  readonly oldLogprobs: readonly number[];
  readonly refLogprobs: readonly number[];
  /** Of the value head; empty where there is none. */
  readonly values: readonly number[];
  /** Of the sampler, at the same temperature; equal to `oldLogprobs` but for rounding. Empty where nothing was drawn. */
  readonly samplerLogprobs: readonly number[];
}

/** The answers to one question. */
export interface Group<A extends Answer = Answer> {
  /** Index of the training item that the question belongs to; mini-batches keep an item whole. */
  readonly item: number;
  readonly answers: readonly A[];
}

/** The reward of an answer, as a whole and placed on its tokens. */
export interface AnswerReward {
  readonly value: number;
  readonly byToken: readonly number[];
}

/** What an answer is credited with. */
export interface Credit {
  /** Of the answer as a whole, before the KL penalty. */
  readonly reward: number;
  /** By token, with the KL penalty where it belongs to the reward. */
  readonly rewards: readonly number[];
  readonly advantages: readonly number[];
  readonly returns: readonly number[];
  /** How much it counts: 1 when sampled, its probability when enumerated. */
  readonly share: number;
}

export type CreditedGroup<G extends Group> = Omit<G, 'answers'> & {
  readonly item: number;
  readonly answers: readonly (G['answers'][number] & Credit)[];
};

/** One rollout batch: which items, the how-manieth, and what stops it. */
export interface RolloutBatch {
  readonly items: readonly number[];
  readonly iteration: number;
  readonly signal: AbortSignal;
}

export interface RolloutSource<G extends Group> {
  /** Answers of the policy, scored by policy and reference; undefined where the signal stopped it. */
  rollOut(batch: RolloutBatch): Promise<readonly G[] | undefined>;
}

/** What a plug-in keeps between steps, as JSON for the checkpoint. */
interface Keeps {
  state?(): unknown;
  restore?(state: unknown): void;
}

export interface RewardSource<G extends Group> extends Keeps {
  /** Of a source that learns, by the name under which a checkpoint holds the moments. */
  readonly optimizers?: Readonly<Record<string, AdamW>>;
  /** By group and answer; undefined where the signal stopped it. */
  reward(groups: readonly G[], batch: RolloutBatch): Promise<Rewards | undefined>;
  /** Trains the source on the rollout batch that it has just judged. */
  learn?(batch: RolloutBatch): Promise<Metrics>;
}

export interface Rewards {
  readonly byGroup: readonly (readonly AnswerReward[])[];
  readonly metrics: Metrics;
}

export interface Advantage<G extends Group> {
  /** @param rewards by group and answer; `byToken` already has the KL penalty where it belongs to the reward */
  credit(
    groups: readonly G[],
    rewards: readonly (readonly AnswerReward[])[],
  ): Promise<readonly CreditedGroup<G>[]>;
}

export interface PolicyGradients {
  /** What is minimised. */
  readonly loss: number;
  /** Its terms by name; a step with one that is not finite is skipped. */
  readonly terms: Metrics;
  readonly metrics: Metrics;
  /** For the progress line. */
  readonly shown: Metrics;
  /** Tokens that passed forward and backward. */
  readonly tokens: number;
}

export interface PolicyObjective<G extends Group> extends Keeps {
  /** Forward and backward of a mini-batch; sets the policy's gradients. `step` counts the steps of the stage. */
  gradients(groups: readonly CreditedGroup<G>[], step: number): Promise<PolicyGradients>;
  /** Told of every step that was applied. */
  applied?(gradients: PolicyGradients): void;
}
