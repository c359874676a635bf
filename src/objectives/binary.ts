/** Binary cross-entropy of labels that may be probabilities. */
import { openTape } from '../autograd/tape.js';
import type { Tensor } from '../runtime/tensor.js';

export interface BinaryItems {
  /** Logits of both classes, f32 [n] each, differentiable; a single output z gives z and 0. */
  readonly positive: Tensor;
  readonly negative: Tensor;
  /** Probability that the class is positive, in [0, 1]. */
  readonly labels: readonly number[];
  /** Weight of each item in the loss; with 1/n it is a mean. */
  readonly weights: readonly number[];
}

/**
 * −Σ w·(y log σ(z) + (1 − y) log σ(−z)) with z = positive − negative, a scalar: the loss of process reward models (arXiv
 * 2305.20050) and of outcome reward models (arXiv 2110.14168). It is the pairwise loss taken in both directions, so
 * two classes, two words and one score train alike.
 */
export function binaryCrossEntropy({ positive, negative, labels, weights }: BinaryItems): Tensor {
  const { device } = positive;
  const share = (of: (label: number) => number) =>
    device.tensor(Float32Array.from(weights, (weight, i) => weight * of(labels[i] as number)));
  const { ops } = device;
  const right = ops.pairwise({ chosen: positive, rejected: negative, weights: share((y) => y) });
  const wrong = ops.pairwise({ chosen: negative, rejected: positive, weights: share((y) => 1 - y) });
  const sum = (x: Tensor, y: Tensor) => ops.add({ x, y }).z;
  const loss = sum(right.loss, wrong.loss);
  openTape()?.recordLoss(loss, [
    [positive, sum(right.dchosen, wrong.drejected)],
    [negative, sum(right.drejected, wrong.dchosen)],
  ]);
  return loss;
}
