import { openTape } from '../autograd/tape.js';
import { spanSum } from '../ops/advantage.js';
import type { Tensor } from '../runtime/tensor.js';
import type { Objective } from './statistics.js';

/** Indices into the rows of log-probs, end exclusive. */
export type Span = readonly [begin: number, end: number];

export interface JudgedAnswer {
  readonly span: Span;
  /** Whether the final answer is right. */
  readonly label: 1 | 0;
  /** A step without a label takes no part. */
  readonly steps: readonly { readonly span: Span; readonly label: 1 | 0 | null }[];
}

/** Reduction over the steps of an answer: their mean, their sum, or equal weights for all steps of the batch. */
export type StepReduction = 'mean' | 'sum' | 'global';

export interface StepKtoInputs {
  /** f32 [T]: token log-probs of the policy; differentiable. */
  readonly logprobs: Tensor;
  /**
   * Log-probs of the reference: f32 [T] too or, with `summed`, f32 [n]: sums over all answers and then over their
   * labelled steps, in order.
   */
  readonly refLogprobs: Tensor;
  readonly summed?: boolean;
  readonly answers: readonly JudgedAnswer[];
  /** Reference points of answers and of steps, see `ktoReference`; taken as 0 where they are negative. */
  readonly z0: number;
  readonly stepZ0: number;
  /** The whole optimizer batch if `answers` is a part of it. Default: `answers`. */
  readonly batch?: { readonly answers: number; readonly labelledSteps: number };
}

export interface StepKtoLevel {
  /** Weight of the level's loss in the sum. Default 1. */
  readonly weight?: number;
  /** Default 0.1. Log-ratios of steps are smaller than those of answers; a larger beta makes up for it. */
  readonly beta?: number;
  /** Weights of desirable and of undesirable items. Default 1. */
  readonly lambdaD?: number;
  readonly lambdaU?: number;
}

export interface StepKtoOptions {
  readonly outcome?: StepKtoLevel;
  readonly step?: StepKtoLevel;
  /** Default mean. */
  readonly reduction?: StepReduction;
}

export type LevelStatistic =
  | 'loss'
  | 'gradient'
  | 'undesirable_reward'
  | 'desirable_reward'
  | 'undesirable'
  | 'desirable';

const LEVEL: readonly LevelStatistic[] = [
  'loss',
  'gradient',
  'undesirable_reward',
  'desirable_reward',
  'undesirable',
  'desirable',
];

export type StepKtoStatistic = `outcome_${LevelStatistic}` | `step_${LevelStatistic}`;

const STATISTICS = ['outcome', 'step'].flatMap((level) =>
  LEVEL.map((name) => `${level}_${name}` as StepKtoStatistic),
);

/**
 * Step-KTO (arXiv 2501.10799): KTO's value of each answer by its outcome and of each step by its judgement,
 * E[w_outcome·l(answer) + w_step·reduction over labelled steps of l(step)], in one launch. Statistics of each level: its loss;
 * `gradient`, the sum over tokens of |d loss / d log-prob|, whose ratio says which level pulls harder; mean rewards
 * beta·(policy − reference) and counts.
 */
export function stepKto(inputs: StepKtoInputs, options: StepKtoOptions = {}): Objective<StepKtoStatistic> {
  const { logprobs, refLogprobs, summed = false, answers, z0, stepZ0 } = inputs;
  const { outcome = {}, step = {}, reduction = 'mean' } = options;
  const { device } = logprobs;
  const judged = answers.map(({ steps }) => steps.filter(({ label }) => label !== null));
  const { answers: count, labelledSteps } = inputs.batch ?? {
    answers: answers.length,
    labelledSteps: judged.flat().length,
  };
  const items: readonly { readonly span: Span; readonly label: 1 | 0 | null }[] = [
    ...answers,
    ...judged.flat(),
  ];
  const shares = judged.flatMap((steps) => {
    const share = { mean: 1 / (count * steps.length), sum: 1 / count, global: 1 / labelledSteps }[reduction];
    return steps.map(() => share * (step.weight ?? 1));
  });
  return device.scope(() => {
    const spans = device.tensor(Int32Array.from(items.flatMap(({ span }) => span)), [items.length, 2]);
    const policy = spanSum(logprobs, spans);
    const { loss, dpolicy, stats } = device.ops.step_kto({
      policy,
      ref: summed ? refLogprobs : spanSum(refLogprobs, spans),
      labels: device.tensor(Int32Array.from(items, ({ label }) => label as 1 | 0)),
      weights: device.tensor(
        Float32Array.from([...answers.map(() => (outcome.weight ?? 1) / count), ...shares]),
      ),
      lengths: device.tensor(Float32Array.from(items, ({ span: [begin, end] }) => end - begin)),
      z0: device.tensor(Float32Array.of(z0, stepZ0)),
      outcomes: answers.length,
      beta: outcome.beta,
      beta_step: step.beta,
      lambda_d: outcome.lambdaD,
      lambda_d_step: step.lambdaD,
      lambda_u: outcome.lambdaU,
      lambda_u_step: step.lambdaU,
    });
    openTape()?.recordLoss(loss, [[policy, dpolicy]]);
    return { loss, statistics: { names: STATISTICS, values: stats } };
  });
}
