import type { TrainedParameters } from '../autograd/parameters.js';
import { type AdamW, allFinite } from './adamw.js';

/** Outcome of applying the accumulated gradients. */
export type Update =
  | { readonly gradNorm: number; readonly nonFinite?: undefined }
  | { readonly nonFinite: string };

/**
 * Updates the parameters with their accumulated gradients. If the loss or a gradient is not finite, nothing changes, the
 * gradients are dropped, and the first non-finite tensor is named.
 */
export async function applyGradients(
  optimizer: AdamW,
  learningRate: number,
  losses: Readonly<Record<string, number>>,
): Promise<Update> {
  const { parameters } = optimizer;
  const loss = Object.entries(losses).find(([, value]) => !Number.isFinite(value));
  if (!loss) {
    const { gradNorm, nonFinite } = await optimizer.step(learningRate);
    if (!nonFinite) return { gradNorm };
  }
  const gradient = parameters.released
    ? await optimizer.firstNonFinite()
    : await nonFiniteGradient(parameters);
  parameters.zeroGrads();
  const named = [loss && `${loss[0]} ${loss[1]}`, gradient && `the gradient of ${gradient}`];
  return { nonFinite: named.filter((text) => text).join(' and ') };
}

async function nonFiniteGradient({ list }: TrainedParameters): Promise<string | undefined> {
  for (const { name, grad } of list) if (grad && !(await allFinite(grad.alias()))) return name;
  return undefined;
}
