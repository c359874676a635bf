/** `method: simpo`: DPO of mean log-probs, with a margin and without a reference. */
import { nonNegative, positiveNumber } from '../../config/fields.js';
import { dpo } from '../../objectives/pairs.js';
import { answerPairs } from './answers/kinds.js';
import type { OfflineObjective } from './answers/objective.js';
import { pairObjective, wholeScores } from './answers/pairs.js';
import { labelSmoothing } from './fields.js';
import { offlineMethod } from './method.js';

/** Keys are those of TRL's CPO trainer with `loss_type: simpo`. */
export interface SimpoSettings {
  readonly beta: number;
  readonly simpo_gamma: number;
  readonly label_smoothing: number;
}

/** arXiv 2405.14734: −log σ(beta·(chosen − rejected) − simpo_gamma), of means per token. */
export function simpoObjective({
  beta,
  simpo_gamma: margin,
  label_smoothing,
}: SimpoSettings): OfflineObjective {
  return pairObjective({
    needsReference: false,
    score: wholeScores({ mean: true }),
    loss: (sides) => dpo(sides, { beta, margin, labelSmoothing: label_smoothing }),
  });
}

export const simpo = offlineMethod({
  name: 'simpo',
  about: 'Preference optimisation of mean log-probs without a reference',
  defaults: { learning_rate: 1e-5, batch_size: 32 },
  keys: {
    beta: positiveNumber(2).describe('Scale of the difference of mean log-probs.'),
    simpo_gamma: nonNegative(0.5).describe('Margin by which the chosen answer has to lead, after `beta`.'),
    label_smoothing: labelSmoothing(),
  },
  kind: answerPairs,
  objective: simpoObjective,
});
