import { openTape } from '../autograd/tape.js';
import type { Tensor } from '../runtime/tensor.js';

/** Objectives make their gradients with the loss; the backward only scales them by the loss's weight in the total. */
export function recordLoss(
  loss: Tensor,
  made: readonly (readonly [input: Tensor, gradient: Tensor])[],
): void {
  const tape = openTape();
  const tracked = made.filter(([input]) => tape?.tracks(input));
  if (tape && tracked.length > 0) tape.recordLoss(loss, tracked);
}
