import { openTape } from '../autograd/tape.js';
import { invalid, StepTrainError } from '../native/errors.js';
import type { Tensor } from '../runtime/tensor.js';
import type { Objective } from './statistics.js';

/** Estimators of KL(policy ‖ reference) from d = log-prob − reference: d, d²/2, exp(−d) − 1 + d. */
export type KlEstimator = 'k1' | 'k2' | 'k3';

/** The loss of ratios and advantages: see {@link ppo}. */
export type Surrogate = 'clip' | 'cispo' | 'sapo';

/** R rows: tokens (PPO, GRPO), or whole sequences (GSPO, RLOO). All f32 [R]. */
export interface PpoInputs {
  /** Log-probs of the policy; differentiable. */
  readonly logprobs: Tensor;
  /** Log-probs of the policy that sampled. */
  readonly oldLogprobs: Tensor;
  readonly advantages: Tensor;
  /** Mask and normaliser: a mean over the optimizer batch has 1/n. A row of weight 0 is not read. */
  readonly weights: Tensor;
  readonly refLogprobs?: Tensor | undefined;
  /** Differentiable; make it with `entropyGradient` where `entropyCoef` is not 0. */
  readonly entropy?: Tensor | undefined;
  /** Values of the value head; differentiable. Needs `returns`. */
  readonly values?: Tensor | undefined;
  /** Needed by `valueClip`. */
  readonly oldValues?: Tensor | undefined;
  readonly returns?: Tensor | undefined;
}

export interface PpoOptions {
  /** The ratio counts down to 1 − clipLow and up to 1 + clipHigh. Default 0.2 each. */
  readonly clipLow?: number;
  readonly clipHigh?: number;
  /** Default `clip`. */
  readonly surrogate?: Surrogate;
  /** τ of `sapo` where the advantage is positive, and where it is not. Default 1 and 1.05. */
  readonly temperaturePositive?: number;
  readonly temperatureNegative?: number;
  /** Weight of the KL penalty in the loss. Default 0. */
  readonly klCoef?: number;
  /** Default k3. */
  readonly klEstimator?: KlEstimator;
  /** Weight of the entropy bonus. Default 0. */
  readonly entropyCoef?: number;
  /** Weight of the value loss. Default 0.1. */
  readonly valueCoef?: number;
  /** Max distance of a value from its old one; 0 for no limit. Default 0. */
  readonly valueClip?: number;
}

const STATISTICS = [
  'policy_loss',
  'value_loss',
  'entropy',
  'kl_k1',
  'kl_k3',
  'old_kl_k3',
  'clip_fraction',
  'value_clip_fraction',
  'ratio_mean',
  'ratio_max',
  'weight',
  'non_finite_rows',
] as const;

export type PpoStatistic = (typeof STATISTICS)[number];

/**
 * Proximal policy optimisation (arXiv 1707.06347, equation 7) with the terms that language models add:
 *
 *     Σ w·[max(−A·d, −A·clip(d, 1 − clipLow, 1 + clipHigh)) + klCoef·KL − entropyCoef·H
 *          + valueCoef·½·max((V − Ret)², (clip(V, V_old ± valueClip) − Ret)²)],   d = exp(log-prob − old)
 *
 * In place of the first max, `cispo` (arXiv 2506.13585) has −A·clip(d)·log-prob, whose clip(d) is a constant, and `sapo` (arXiv 2511.20347)
 * −A·(4/τ)·σ(τ·(d − 1)), which no clip range bounds.
 * Outside the clip range on the good side the gradient is exactly 0. Log-prob differences are held within ±20. With
 * answer-wise weights and group advantages it is GRPO (arXiv 2402.03300). Statistics are means by weight.
 */
export function ppo(inputs: PpoInputs, options: PpoOptions = {}): Objective<PpoStatistic> {
  const { logprobs, oldLogprobs, advantages, weights, refLogprobs, entropy, values } = inputs;
  const { klCoef = 0, entropyCoef = 0, valueClip = 0 } = options;
  demand('klCoef', klCoef !== 0, 'refLogprobs', refLogprobs);
  demand('entropyCoef', entropyCoef !== 0, 'entropy', entropy);
  demand('values', values !== undefined, 'returns', inputs.returns);
  demand('valueClip', values !== undefined && valueClip > 0, 'oldValues', inputs.oldValues);
  const tape = openTape();
  if (entropy && entropyCoef !== 0 && tape?.tracks(logprobs) && !tape.tracks(entropy)) {
    throw new StepTrainError(
      'E_TAPE',
      'ppo: the entropy carries no gradient; make it with headLogprobs(…, { entropyGradient: true })',
    );
  }
  const { loss, dlogprobs, dentropy, dvalues, stats } = logprobs.device.ops.ppo({
    logprobs,
    old_logprobs: oldLogprobs,
    advantages,
    weights,
    ref_logprobs: refLogprobs,
    entropy,
    values,
    old_values: inputs.oldValues,
    returns: inputs.returns,
    clip_low: options.clipLow,
    clip_high: options.clipHigh,
    kl_coef: klCoef,
    kl: options.klEstimator,
    entropy_coef: entropyCoef,
    vf_coef: options.valueCoef,
    value_clip: valueClip,
    surrogate: options.surrogate,
    tau_pos: options.temperaturePositive,
    tau_neg: options.temperatureNegative,
    dentropy: entropy !== undefined && entropyCoef !== 0,
    dvalues: values !== undefined,
  });
  openTape()?.recordLoss(loss, [
    [logprobs, dlogprobs],
    ...(entropy && dentropy ? [[entropy, dentropy] as const] : []),
    ...(values && dvalues ? [[values, dvalues] as const] : []),
  ]);
  return { loss, statistics: { names: STATISTICS, values: stats } };
}

function demand(option: string, active: boolean, input: string, given: Tensor | undefined): void {
  if (active && !given) throw invalid(`ppo: ${option} needs ${input}, found none`);
}
