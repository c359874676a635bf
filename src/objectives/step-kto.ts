import { spanSum } from '../ops/advantage.js';
import type { Tensor } from '../runtime/tensor.js';
import { type KtoOptions, type KtoStatistic, kto } from './kto.js';
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
  /** f32 [T] */
  readonly refLogprobs: Tensor;
  readonly answers: readonly JudgedAnswer[];
  /** f32 [1]: reference point of answers, see `ktoReference`. */
  readonly z0: Tensor;
  /** f32 [1]: reference point of steps. */
  readonly stepZ0: Tensor;
  /** The whole optimizer batch if `answers` is a part of it. Default: `answers`. */
  readonly batch?: { readonly answers: number; readonly labelledSteps: number };
}

export interface StepKtoOptions {
  readonly outcome?: KtoOptions & { readonly weight?: number };
  /** Log-ratios of steps are smaller than those of answers; a larger beta makes up for it. */
  readonly step?: KtoOptions & { readonly weight?: number };
  /** Default mean. */
  readonly reduction?: StepReduction;
}

/** Two losses whose sum is the objective: `tape.backward([[outcome.loss, 1], [step.loss, 1]])`. */
export interface StepKto {
  readonly outcome: Objective<KtoStatistic>;
  readonly step: Objective<KtoStatistic>;
}

/**
 * Step-KTO (arXiv 2501.10799): KTO's value of each answer by its outcome and of each step by its judgement,
 * E[w_outcome·l(answer) + w_step·reduction over labelled steps of l(step)].
 */
export function stepKto(inputs: StepKtoInputs, options: StepKtoOptions = {}): StepKto {
  const { logprobs, refLogprobs, answers } = inputs;
  const { outcome = {}, step = {}, reduction = 'mean' } = options;
  const { device } = logprobs;
  const judged = answers.map(({ steps }) => steps.filter(({ label }) => label !== null));
  const batch = inputs.batch ?? {
    answers: answers.length,
    labelledSteps: judged.reduce((count, steps) => count + steps.length, 0),
  };
  const level = (
    items: readonly { readonly span: Span; readonly label: 1 | 0 | null }[],
    weights: readonly number[],
    z0: Tensor,
    settings: KtoOptions & { readonly weight?: number },
  ) => {
    const spans = device.tensor(Int32Array.from(items.flatMap(({ span }) => span)), [items.length, 2]);
    const weight = settings.weight ?? 1;
    return kto(
      {
        policy: spanSum(logprobs, spans),
        ref: spanSum(refLogprobs, spans),
        labels: device.tensor(Int32Array.from(items, ({ label }) => label ?? 0)),
        weights: device.tensor(Float32Array.from(weights, (share) => share * weight)),
        z0,
      },
      settings,
    );
  };
  const shares = judged.flatMap((steps) => {
    const share = {
      mean: 1 / (batch.answers * steps.length),
      sum: 1 / batch.answers,
      global: 1 / batch.labelledSteps,
    }[reduction];
    return steps.map(() => share);
  });
  return device.scope(() => ({
    outcome: level(
      answers,
      answers.map(() => 1 / batch.answers),
      inputs.z0,
      outcome,
    ),
    step: level(judged.flat(), shares, inputs.stepZ0, step),
  }));
}
