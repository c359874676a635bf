/** Full-Step-DPO: DPO of all steps, each weighted by a reward model's score. */
import { dpo } from '../../../objectives/pairs.js';
import { spanSum } from '../../../ops/advantage.js';
import type { AnswerTokens } from '../items.js';
import type { OfflineObjective } from '../objective.js';
import { type ScoredAnswer, type ScoredBatch, spanBounds } from '../scores.js';
import { pairTerm, pairWeights } from '../sides.js';

export interface FullStepDpoSettings {
  readonly beta: number;
  /** Divides the scores before their softmax. */
  readonly temperature: number;
}

/**
 * −log σ(beta·Σ a·ρ of chosen − beta·Σ a·ρ of rejected): ρ is the log-ratio of a step, and a the softmax over the steps of +score
 * in the chosen answer and −score in the rejected one (arXiv 2502.14356; the formula is not verified). Times the number
 * of steps, so that equal scores give DPO.
 */
export function fullStepDpo({ beta, temperature }: FullStepDpoSettings): OfflineObjective {
  return {
    needsReference: true,
    needsMismatched: false,
    begin: (batch) => ({
      terms(scored) {
        const side = (rest: number) => scored.answers.filter((_, i) => i % 2 === rest);
        const [chosen, rejected] = [
          weighted(scored, side(0), temperature),
          weighted(scored, side(1), -temperature),
        ];
        const weights = pairWeights(scored, batch);
        return [
          pairTerm(
            dpo(
              {
                chosen: chosen.policy,
                rejected: rejected.policy,
                refChosen: chosen.ref,
                refRejected: rejected.ref,
                weights,
              },
              { beta },
            ),
            weights.size,
          ),
        ];
      },
    }),
  };
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
  const powers = logits.map((logit) => Math.exp(logit - most));
  const sum = powers.reduce((total, power) => total + power, 0);
  return powers.map((power) => (steps.length * power) / sum);
}
