/** `method: kto`: Kahneman-Tversky optimisation of answers that are desirable or not. */
import { choice } from '../../config/fields.js';
import { StepTrainError } from '../../native/errors.js';
import { kto as ktoLoss } from '../../objectives/kto.js';
import type { OfflineItem } from '../../scoring/implicit/items.js';
import { spanScores } from '../../scoring/implicit/sums.js';
import { labelledAnswers } from './answers/kinds.js';
import type { MismatchedSums, OfflineObjective } from './answers/objective.js';
import { beta, classWeight } from './fields.js';
import { offlineMethod } from './method.js';

/** Keys are TRL's. */
export interface KtoSettings {
  readonly beta: number;
  readonly desirable_weight: number;
  readonly undesirable_weight: number;
  readonly loss_type: 'kto' | 'apo_zero_unpaired';
}

/** arXiv 2402.01306; see `kto` of the objectives for the equation. */
export function ktoObjective(settings: KtoSettings): OfflineObjective {
  const options = {
    beta: settings.beta,
    lambdaD: settings.desirable_weight,
    lambdaU: settings.undesirable_weight,
    kind: settings.loss_type === 'kto' ? 'kto' : 'apo_zero',
  } as const;
  return {
    needsReference: true,
    needsMismatched: settings.loss_type === 'kto',
    begin(batch, mismatched, means) {
      const z0 = mismatched ? referencePoint(mismatched) : 0;
      if (mismatched) {
        means.mean('z0', z0, 1);
        means.mean('z0_clamped', z0 < 0 ? 1 : 0, 1);
      }
      return {
        terms(scored) {
          const { device } = scored.logprobs;
          const count = scored.answers.length;
          const { loss, statistics } = ktoLoss(
            {
              ...spanScores(
                scored,
                scored.answers.map((answer) => ({ answer })),
              ),
              labels: device.tensor(Int32Array.from(scored.answers, ({ tokens }) => labelOf(tokens))),
              weights: device.tensor(new Float32Array(count).fill(1 / batch.length)),
              z0: device.tensor(Float32Array.of(z0)),
            },
            options,
          );
          return [
            {
              loss,
              statistics,
              measure(found, means) {
                const { desirable = 0, undesirable = 0 } = found;
                means.mean('rewards_chosen', found.desirable_reward ?? 0, desirable);
                means.mean('rewards_rejected', found.undesirable_reward ?? 0, undesirable);
              },
            },
          ];
        },
      };
    },
  };
}

/** The mean log-ratio of mismatched answers, before it is clamped at 0. */
export function referencePoint({ policy, reference }: MismatchedSums): number {
  const sum = policy.reduce((sum, [own = 0], i) => sum + own - (reference[i]?.[0] ?? 0), 0);
  return sum / policy.length;
}

export function labelOf({ label }: OfflineItem['answers'][number]): 1 | 0 {
  if (label === null)
    throw new StepTrainError('E_DATA', 'an answer has no label; KTO learns from labelled answers');
  return label;
}

export const kto = offlineMethod({
  name: 'kto',
  about: 'Kahneman-Tversky optimisation of answers labelled desirable or not',
  defaults: { learning_rate: 1e-5, batch_size: 64 },
  keys: {
    beta: beta(),
    desirable_weight: classWeight('desirable answers'),
    undesirable_weight: classWeight('undesirable answers'),
    loss_type: choice('kto', 'apo_zero_unpaired').describe(
      '`apo_zero_unpaired` takes 0 as the reference point, in place of mismatched prompts and answers.',
    ),
  },
  kind: labelledAnswers,
  objective: ktoObjective,
  comparesProblems: ({ loss_type }) => loss_type === 'kto',
});
