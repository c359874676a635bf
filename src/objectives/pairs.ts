/** Objectives over n pairs of a chosen and a rejected answer (or step). */
import { openTape } from '../autograd/tape.js';
import { StepTrainError } from '../native/errors.js';
import type { Tensor } from '../runtime/tensor.js';
import { recordLoss } from './record.js';
import type { Objective } from './statistics.js';

/** f32 [n] each; both differentiable. */
export interface Pairs {
  readonly chosen: Tensor;
  readonly rejected: Tensor;
  /** Absent: 1/n each. A pair of weight 0 is not read. */
  readonly weights?: Tensor | undefined;
}

const SCORES = ['accuracy', 'margin', 'chosen', 'rejected'] as const;
const ODDS = ['accuracy', 'log_odds', 'chosen', 'rejected'] as const;

/**
 * Bradley and Terry's loss of a reward model: −log σ(chosen − rejected − margin) + center·(chosen + rejected)²
 * (arXiv 1706.03741; equation 14 of StepAMC, arXiv 2503.18432). `center` (arXiv 2312.09244) keeps scores near 0.
 *
 * @param pairs scores of the reward head
 */
export function pairwise(
  { chosen, rejected, weights }: Pairs,
  { margin = 0, center = 0 }: { readonly margin?: number; readonly center?: number } = {},
): Objective<(typeof SCORES)[number]> {
  const run = record('pairwise', chosen, rejected, [chosen, rejected, weights], [margin, center]);
  return { loss: run.loss, statistics: { names: SCORES, values: run.statistics } };
}

export interface DpoPairs extends Pairs {
  /** Of the reference, as `chosen` and `rejected`. Both or none. */
  readonly refChosen?: Tensor | undefined;
  readonly refRejected?: Tensor | undefined;
}

export interface DpoOptions {
  /** Default 0.1. */
  readonly beta?: number;
  /** Share of pairs taken to be labelled the wrong way round. Default 0. */
  readonly labelSmoothing?: number;
  /** Subtracted from beta·Δ. Default 0. */
  readonly margin?: number;
  readonly kind?: 'sigmoid' | 'ipo' | 'hinge';
}

const DPO_KINDS = ['sigmoid', 'ipo', 'hinge'];

/**
 * Direct preference optimisation of Δ = (chosen − refChosen) − (rejected − refRejected), sums of log-probs over an
 * answer (arXiv 2305.18290, equation 7) or over one step (Step-DPO, arXiv 2406.18629): −log σ(beta·Δ − margin). Means
 * per token without a reference make it SimPO (arXiv 2405.14734). `ipo` is (Δ − 1/(2 beta))² (arXiv 2310.12036),
 * `hinge` max(0, 1 − beta·Δ + margin) (arXiv 2305.10425). Statistics: rewards beta·(log-prob − reference).
 */
export function dpo(
  { chosen, rejected, refChosen, refRejected, weights }: DpoPairs,
  { beta = 0.1, labelSmoothing = 0, margin = 0, kind = 'sigmoid' }: DpoOptions = {},
): Objective<(typeof SCORES)[number]> {
  if (!refChosen !== !refRejected) {
    throw new StepTrainError('E_RANGE', 'dpo: refChosen and refRejected come together or not at all');
  }
  if (!(beta > 0)) throw new StepTrainError('E_RANGE', `dpo: expected beta above 0, found ${beta}`);
  const tensors = [chosen, rejected, refChosen, refRejected, weights];
  const scalars = [beta, labelSmoothing, margin, DPO_KINDS.indexOf(kind)];
  const run = record('dpo', chosen, rejected, tensors, scalars);
  return { loss: run.loss, statistics: { names: SCORES, values: run.statistics } };
}

/**
 * Odds-ratio preference optimisation (arXiv 2403.07691, equation 6): −chosen − beta·log σ(log odds of chosen − of
 * rejected), log odds = l − log(1 − exp l).
 *
 * @param pairs mean log-probs per token
 */
export function orpo(
  { chosen, rejected, weights }: Pairs,
  { beta = 0.1 }: { readonly beta?: number } = {},
): Objective<(typeof ODDS)[number]> {
  const run = record('orpo', chosen, rejected, [chosen, rejected, weights], [beta]);
  return { loss: run.loss, statistics: { names: ODDS, values: run.statistics } };
}

function record(
  op: 'pairwise' | 'dpo' | 'orpo',
  chosen: Tensor,
  rejected: Tensor,
  tensors: readonly (Tensor | undefined)[],
  scalars: readonly number[],
): { readonly loss: Tensor; readonly statistics: Tensor } {
  const { device } = chosen;
  const outputs = device.enqueue(device.signature(op), tensors, scalars);
  const [loss, dchosen, drejected, statistics] = outputs as [Tensor, Tensor, Tensor, Tensor];
  recordLoss(openTape(), loss, [
    [chosen, dchosen],
    [rejected, drejected],
  ]);
  return { loss, statistics };
}
