/** `method: dpo`: direct preference optimisation of pairs of answers. */
import { choice } from '../../config/fields.js';
import { withoutEffect } from '../../config/schema.js';
import { dpo as dpoLoss } from '../../objectives/pairs.js';
import { answerPairs } from './answers/kinds.js';
import type { OfflineObjective } from './answers/objective.js';
import { pairObjective, wholeScores } from './answers/pairs.js';
import { beta, labelSmoothing } from './fields.js';
import { offlineMethod } from './method.js';

/** Keys are TRL's. */
export interface DpoSettings {
  readonly beta: number;
  readonly loss_type: 'sigmoid' | 'ipo' | 'hinge';
  readonly label_smoothing: number;
}

/** arXiv 2305.18290; `ipo` (arXiv 2310.12036) takes means per token, as TRL does. */
export function dpoObjective({ beta, loss_type: kind, label_smoothing }: DpoSettings): OfflineObjective {
  return pairObjective({
    needsReference: true,
    score: wholeScores({ mean: kind === 'ipo' }),
    loss: (sides) => dpoLoss(sides, { beta, kind, labelSmoothing: label_smoothing }),
  });
}

export const dpo = offlineMethod({
  name: 'dpo',
  about: 'Direct preference optimisation of pairs of answers',
  defaults: { learning_rate: 1e-5, batch_size: 32 },
  keys: {
    beta: beta(),
    loss_type: choice('sigmoid', 'ipo', 'hinge').describe(
      'The loss of a pair’s margin: −log σ; the squared distance from 1/(2 beta), of means per token; or a hinge at 1.',
    ),
    label_smoothing: labelSmoothing(),
  },
  kind: answerPairs,
  objective: dpoObjective,
  *unread({ loss_type, label_smoothing }) {
    if (loss_type !== 'sigmoid')
      yield* withoutEffect(
        'dpo',
        { label_smoothing },
        {
          keys: ['label_smoothing'],
          defaults: { label_smoothing: 0 },
          why: `dpo.loss_type is ${loss_type}`,
        },
      );
  },
});
