/** `method: step_apo`: DPO of single steps that lead by the difference of their values (Step-APO). */
import { nonNegative } from '../../config/fields.js';
import { dpo } from '../../objectives/pairs.js';
import type { AnswerTokens } from '../../scoring/implicit/items.js';
import { stepPairs } from './answers/kinds.js';
import type { OfflineObjective } from './answers/objective.js';
import { pairObjective, wholeScores } from './answers/pairs.js';
import { beta } from './fields.js';
import { offlineMethod } from './method.js';

export interface StepApoSettings {
  readonly beta: number;
  /** Multiplies the advantages; 0 is Step-DPO. */
  readonly advantage_weight: number;
}

/**
 * −log σ(beta·Δ − advantage_weight·(A of the chosen step − A of the rejected one)), after arXiv 2409.08642, whose own equation was not
 * read: it is what the paper's premises give, that a step is preferred by its reward r (Bradley and Terry) and that
 * r + V(after it) − V(before it) = beta·log-ratio. A step's advantage is its score, an estimate of V after it; both steps of a pair have
 * the same beginning, so that V before them cancels out.
 */
export function stepApoObjective({ beta, advantage_weight: weight }: StepApoSettings): OfflineObjective {
  return pairObjective({
    needsReference: true,
    // A pair's own margin, as a shift of what the log-probs are compared with.
    score: (scored, answers) =>
      wholeScores({ mean: false })(
        scored,
        answers.map(({ reference, ...answer }) => ({
          ...answer,
          reference: reference?.map((sum) => sum + (weight * advantage(answer.tokens)) / beta),
        })),
      ),
    loss: (sides) => dpo(sides, { beta }),
  });
}

/** A step without a score counts by its label. */
function advantage({ steps: [step] }: AnswerTokens): number {
  return step?.score ?? step?.label ?? 0;
}

export const stepApo = offlineMethod({
  name: 'step_apo',
  about: 'Step-DPO in which a right step has to lead by the difference of both steps’ scores',
  defaults: { learning_rate: 1e-5, batch_size: 32 },
  keys: {
    beta: beta(0.4),
    advantage_weight: nonNegative(1).describe('Multiplies the difference of the scores; 0 is Step-DPO.'),
  },
  kind: stepPairs,
  objective: stepApoObjective,
});
