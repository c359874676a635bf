import { openTape } from '../autograd/tape.js';
import type { Tensor } from '../runtime/tensor.js';
import type { Objective } from './statistics.js';

/** n answers or steps, each judged alone. */
export interface KtoInputs {
  /** f32 [n]: log-probs summed over the item's tokens; differentiable. */
  readonly policy: Tensor;
  /** f32 [n]: the same of the reference. */
  readonly ref: Tensor;
  /** i32 [n]: 1 desirable, 0 undesirable. */
  readonly labels: Tensor;
  /** f32 [n]: normaliser; an item of weight 0 is not read. */
  readonly weights: Tensor;
  /** f32 [1]: the reference point, see `ktoReference`; taken as 0 where it is negative. No gradient flows into it. */
  readonly z0: Tensor;
}

export interface KtoOptions {
  /** Default 0.1. */
  readonly beta?: number;
  /** Weights of desirable and of undesirable items. Default 1. */
  readonly lambdaD?: number;
  readonly lambdaU?: number;
  /** `apo_zero` (arXiv 2408.06266) takes 0 as the reference point. Default `kto`. */
  readonly kind?: 'kto' | 'apo_zero';
}

const STATISTICS = ['desirable_reward', 'undesirable_reward', 'desirable', 'undesirable'] as const;

export type KtoStatistic = (typeof STATISTICS)[number];

/**
 * Kahneman-Tversky optimisation (arXiv 2402.01306, equation 7): Σ w·λ·(1 − σ(±beta·(policy − ref − z0))), + for
 * desirable items. Statistics: mean beta·(policy − ref) and count of each kind.
 */
export function kto(
  { policy, ref, labels, weights, z0 }: KtoInputs,
  { beta, lambdaD: lambda_d, lambdaU: lambda_u, kind }: KtoOptions = {},
): Objective<KtoStatistic> {
  const { ops } = policy.device;
  const inputs = { policy, ref, labels, weights, z0 };
  const { loss, dpolicy, stats } = ops.kto({ ...inputs, beta, lambda_d, lambda_u, kind });
  openTape()?.recordLoss(loss, [[policy, dpolicy]]);
  return { loss, statistics: { names: STATISTICS, values: stats } };
}

/**
 * KTO's reference point: the mean of policy − ref over mismatched pairs of prompt and answer, f32 [1]. Not clamped, so
 * that it may be averaged further; not differentiable.
 *
 * @param policy f32 [n]: summed log-probs of answers after prompts that are not theirs
 */
export function ktoReference(policy: Tensor, ref: Tensor): Tensor {
  return policy.device.ops.kto_reference({ policy, ref }).z0;
}
