/** Objectives over n pairs of a chosen and a rejected answer (or step). */
import { openTape } from '../autograd/tape.js';
import { invalid } from '../native/errors.js';
import type { Tensor } from '../runtime/tensor.js';
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
  { margin, center }: { readonly margin?: number; readonly center?: number } = {},
): Objective<(typeof SCORES)[number]> {
  const { ops } = chosen.device;
  return objective(chosen, rejected, SCORES, ops.pairwise({ chosen, rejected, weights, margin, center }));
}

export interface DpoPairs extends Pairs {
  /** Log-probs of the reference, as `chosen` and `rejected`. Both or none. */
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
  /** Default sigmoid. */
  readonly kind?: 'sigmoid' | 'ipo' | 'hinge';
}

/**
 * Direct preference optimisation of Δ = (chosen − refChosen) − (rejected − refRejected), sums of log-probs over an
 * answer (arXiv 2305.18290, equation 7) or over one step (Step-DPO, arXiv 2406.18629): −log σ(beta·Δ − margin). Means
 * per token without a reference make it SimPO (arXiv 2405.14734). `ipo` is (Δ − 1/(2 beta))² (arXiv 2310.12036),
 * `hinge` max(0, 1 − beta·Δ + margin) (arXiv 2305.10425). Statistics: rewards beta·(log-prob − reference).
 */
export function dpo(
  { chosen, rejected, refChosen, refRejected, weights }: DpoPairs,
  { beta, labelSmoothing, margin, kind }: DpoOptions = {},
): Objective<(typeof SCORES)[number]> {
  if (!refChosen !== !refRejected) {
    throw invalid('dpo: refChosen and refRejected come together or not at all');
  }
  if (beta !== undefined && !(beta > 0)) {
    throw invalid(`dpo: expected beta above 0, found ${beta}`);
  }
  const made = chosen.device.ops.dpo({
    chosen,
    rejected,
    ref_chosen: refChosen,
    ref_rejected: refRejected,
    weights,
    beta,
    label_smoothing: labelSmoothing,
    margin,
    kind,
  });
  return objective(chosen, rejected, SCORES, made);
}

/**
 * Odds-ratio preference optimisation (arXiv 2403.07691, equation 6): −chosen − beta·log σ(log odds of chosen − of
 * rejected), log odds = l − log(1 − exp l).
 *
 * @param pairs mean log-probs per token; beta: default 0.1
 */
export function orpo(
  { chosen, rejected, weights }: Pairs,
  { beta }: { readonly beta?: number } = {},
): Objective<(typeof ODDS)[number]> {
  return objective(chosen, rejected, ODDS, chosen.device.ops.orpo({ chosen, rejected, weights, beta }));
}

function objective<Name extends string>(
  chosen: Tensor,
  rejected: Tensor,
  names: readonly Name[],
  made: Record<'loss' | 'dchosen' | 'drejected' | 'stats', Tensor>,
): Objective<Name> {
  openTape()?.recordLoss(made.loss, [
    [chosen, made.dchosen],
    [rejected, made.drejected],
  ]);
  return { loss: made.loss, statistics: { names, values: made.stats } };
}
