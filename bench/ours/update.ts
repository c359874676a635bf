/** The update that ends a timed step of training. */
import type { AdamW } from '#src/train/adamw.js';
import { applyGradients } from '#src/train/update.js';

const LEARNING_RATE = 1e-5;

/** @throws Error where the loss or a gradient is not finite: such a step does other work than one of a run */
export async function update(optimizer: AdamW, loss: number): Promise<void> {
  const { nonFinite } = await applyGradients(optimizer, LEARNING_RATE, { loss });
  if (nonFinite !== undefined) throw new Error(`${nonFinite} is not finite`);
}
