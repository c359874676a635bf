/** `method: full_step_dpo`: DPO of all steps, each weighted by a reward model's score. */

import { positiveNumber } from '../../config/fields.js';
import { exp } from '../../native/elementary.js';
import { dpo } from '../../objectives/pairs.js';
import { spanSum } from '../../ops/advantage.js';
import type { AnswerTokens } from '../../scoring/implicit/items.js';
import { type ScoredAnswer, type ScoredBatch, spanBounds } from '../../scoring/implicit/sums.js';
import { answerPairs, type ItemKind, withoutSteps } from './answers/kinds.js';
import type { OfflineObjective } from './answers/objective.js';
import { pairObjective } from './answers/pairs.js';
import { beta } from './fields.js';
import { offlineMethod } from './method.js';

interface FullStepDpoSettings {
  readonly beta: number;
  /** Divides the scores before their softmax. */
  readonly temperature: number;
}

/**
 * −log σ(beta·Σ a·ρ of chosen − beta·Σ a·ρ of rejected): ρ is the log-ratio of a step, and a the softmax over the steps of +score
 * in the chosen answer and −score in the rejected one (arXiv 2502.14356; the formula is not verified). Times the number
 * of steps, so that equal scores give DPO.
 */
function fullStepDpoObjective({ beta, temperature }: FullStepDpoSettings): OfflineObjective {
  return pairObjective({
    needsReference: true,
    score: (scored, answers, side) =>
      weighted(scored, answers, side === 'chosen' ? temperature : -temperature),
    loss: (sides) => dpo(sides, { beta }),
  });
}

function weighted({ logprobs }: ScoredBatch, answers: readonly ScoredAnswer[], temperature: number) {
  const { device } = logprobs;
  const shares = answers.map(({ tokens }) => stepShares(tokens, temperature));
  const bounds = answers.flatMap((answer) =>
    answer.tokens.steps.map((_, step) => spanBounds({ answer, step })),
  );
  const steps = spanSum(logprobs, device.tensor(Int32Array.from(bounds.flat()), [bounds.length, 2]), {
    weights: device.tensor(Float32Array.from(shares.flat())),
  });
  let at = 0;
  const whole = answers.flatMap(({ tokens }) => {
    const begin = at;
    at += tokens.steps.length;
    return [begin, at];
  });
  const policy = spanSum(steps, device.tensor(Int32Array.from(whole), [answers.length, 2]));
  const ref = Float32Array.from(answers, ({ reference }, i) =>
    (shares[i] ?? []).reduce((sum, share, step) => sum + share * (reference?.[step + 1] ?? 0), 0),
  );
  return { policy, ref: device.tensor(ref) };
}

/** Softmax over the steps of score / temperature, times their number. A step without a score counts by its label, and as 0 without either. */
export function stepShares({ steps }: Pick<AnswerTokens, 'steps'>, temperature: number): number[] {
  const logits = steps.map(({ score, label }) => (score ?? label ?? 0) / temperature);
  const most = Math.max(...logits);
  const powers = logits.map((logit) => exp(logit - most));
  const sum = powers.reduce((total, power) => total + power, 0);
  return powers.map((power) => (steps.length * power) / sum);
}

/** Pairs of answers whose steps have scores, or labels in their place. */
export const scoredPairs: ItemKind = {
  ...answerPairs,
  doubt: (items) =>
    withoutSteps(
      items,
      ({ score, label }) => score !== undefined || label !== null,
      'score or a label',
      'all weigh the same and the method is DPO',
    ),
};

export const fullStepDpo = offlineMethod({
  name: 'full_step_dpo',
  about: 'DPO of whole answers whose steps are weighted by a reward model’s scores, those of the records',
  defaults: { learning_rate: 1e-5, batch_size: 32 },
  keys: {
    beta: beta(),
    temperature: positiveNumber(1).describe(
      'Divides the scores of steps before their softmax: larger makes the steps more equal, and the method DPO.',
    ),
  },
  kind: scoredPairs,
  objective: fullStepDpoObjective,
});
