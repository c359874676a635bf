/** `method: orpo`: likelihood of the chosen answer and odds of both, without a reference. */
import { positiveNumber } from '../../config/fields.js';
import { orpo as orpoLoss } from '../../objectives/pairs.js';
import { answerPairs } from './answers/kinds.js';
import type { OfflineObjective } from './answers/objective.js';
import { pairObjective, wholeScores } from './answers/pairs.js';
import { offlineMethod } from './method.js';

/** arXiv 2403.07691. The key is TRL's. */
export function orpoObjective({ beta }: { readonly beta: number }): OfflineObjective {
  return pairObjective({
    needsReference: false,
    score: wholeScores({ mean: true }),
    loss: (sides) => orpoLoss(sides, { beta }),
    logged: {
      accuracy: 'rewards_accuracies',
      log_odds: 'log_odds',
      chosen: 'logps_chosen',
      rejected: 'logps_rejected',
    },
  });
}

export const orpo = offlineMethod({
  name: 'orpo',
  about: 'Likelihood of chosen answers and odds of both, without a reference',
  defaults: { learning_rate: 1e-5, batch_size: 32 },
  keys: {
    beta: positiveNumber(0.1).describe(
      'Weight of the odds ratio beside the likelihood of the chosen answer.',
    ),
  },
  kind: answerPairs,
  objective: orpoObjective,
});
