/** Likelihood objectives of scalar and class heads. */
import { openTape } from '../autograd/tape.js';
import type { Tensor } from '../runtime/tensor.js';
import type { Objective } from './statistics.js';

const STATISTICS = ['accuracy', 'probability', 'weight', 'rows'] as const;

export type LikelihoodStatistic = (typeof STATISTICS)[number];

/**
 * Binary cross-entropy Σ w·BCE(σ(logit), label), the loss of outcome and process reward models (arXiv 2305.20050).
 * Statistics: accuracy at 0.5 and mean probability, by weight.
 *
 * @param logits f32 [n], of a scalar head; differentiable
 * @param labels f32 [n] in [0, 1]: soft labels are shares
 * @param weights f32 [n]: mask and normaliser
 */
export function bce(logits: Tensor, labels: Tensor, weights: Tensor): Objective<LikelihoodStatistic> {
  return likelihood(logits, logits.device.ops.bce({ logits, labels, weights }));
}

/**
 * −Σ w·log softmax(logits)[target]. Statistics: accuracy and mean probability of the target, by weight.
 *
 * @param logits f32 [R, C], of a class head; differentiable
 * @param targets i32 [R]; not read where the weight is 0
 * @param weights f32 [R]: mask and normaliser
 */
export function crossEntropy(
  logits: Tensor,
  targets: Tensor,
  weights: Tensor,
): Objective<LikelihoodStatistic> {
  return likelihood(logits, logits.device.ops.cross_entropy({ logits, targets, weights }));
}

function likelihood(
  logits: Tensor,
  { loss, dlogits, stats }: { readonly loss: Tensor; readonly dlogits: Tensor; readonly stats: Tensor },
): Objective<LikelihoodStatistic> {
  openTape()?.recordLoss(loss, [[logits, dlogits]]);
  return { loss, statistics: { names: STATISTICS, values: stats } };
}
