import type { Tape } from '../autograd/tape.js';
import type { Tensor } from '../runtime/tensor.js';

/** Objectives make their gradients with the loss; the backward only scales them by the loss's weight in the total. */
export function recordLoss(
  tape: Tape | undefined,
  loss: Tensor,
  pairs: readonly (readonly [input: Tensor, gradient: Tensor | undefined])[],
): void {
  const tracked = pairs.filter(([input, gradient]) => gradient && tape?.tracks(input));
  if (!tape || tracked.length === 0) return;
  const saved = tracked.map(([, gradient]) => tape.save(gradient as Tensor));
  tape.recordLoss(loss, saved, (seed, gradients) => {
    tracked.forEach(([input], i) => {
      const gradient = saved[i] as Tensor;
      const { device } = gradient;
      const scaled =
        seed === 1
          ? gradient.alias()
          : (device.enqueue(device.signature('scale'), [gradient], [seed])[0] as Tensor);
      gradients.add(input, scaled);
    });
  });
}
