/** `method: implicit_prm`: PRIME's implicit process reward model: outcomes alone teach log-ratios that are rewards of every token. */
import type { z } from 'zod';
import { dpo } from '../../objectives/pairs.js';
import { type ScoredAnswer, type ScoredBatch, spanScores } from '../../scoring/implicit/sums.js';
import { implicitSettings } from '../../scoring/settings.js';
import { labelledAnswers } from './answers/kinds.js';
import type { OfflineObjective, OfflineTerm } from './answers/objective.js';
import { beta } from './fields.js';
import { labelOf } from './kto.js';
import { offlineMethod } from './method.js';

export interface ImplicitPrmSettings {
  readonly beta: number;
}

/**
 * Binary cross-entropy of σ(beta·(log-prob − reference)), summed over the answer, and its outcome (arXiv 2412.01981, 2502.01456).
 * It is DPO of an answer against one of log-ratio 0, on the side that its label says.
 */
export function implicitPrmObjective({ beta }: ImplicitPrmSettings): OfflineObjective {
  return {
    needsReference: true,
    needsMismatched: false,
    begin(batch) {
      const count = batch.reduce((sum, { answers }) => sum + answers.length, 0);
      return {
        terms: (scored) =>
          ([1, 0] as const).flatMap((label) => {
            const own = scored.answers.filter(({ tokens }) => labelOf(tokens) === label);
            return own.length > 0 ? [term(scored, own, { label, beta, count })] : [];
          }),
      };
    },
  };
}

function term(
  scored: ScoredBatch,
  answers: readonly ScoredAnswer[],
  { label, beta, count }: { readonly label: 1 | 0; readonly beta: number; readonly count: number },
): OfflineTerm {
  const { device } = scored.logprobs;
  const { policy, ref } = spanScores(
    scored,
    answers.map((answer) => ({ answer })),
  );
  const none = device.tensor(new Float32Array(answers.length));
  const weights = device.tensor(new Float32Array(answers.length).fill(1 / count));
  const sides =
    label === 1
      ? { chosen: policy, refChosen: ref, rejected: none, refRejected: none }
      : { chosen: none, refChosen: none, rejected: policy, refRejected: ref };
  const { loss, statistics } = dpo({ ...sides, weights }, { beta });
  return {
    loss,
    statistics,
    measure({ accuracy = 0, chosen = 0, rejected = 0 }, means) {
      means.mean('accuracy', accuracy, answers.length);
      means.mean(
        label === 1 ? 'rewards_chosen' : 'rewards_rejected',
        label === 1 ? chosen : rejected,
        answers.length,
      );
    },
  };
}

const method = offlineMethod({
  name: 'implicit_prm',
  about:
    'PRIME’s implicit process reward model: from outcomes alone, log-ratios that are rewards of every token',
  defaults: { learning_rate: 1e-5, batch_size: 64 },
  keys: { beta: beta(0.05) },
  kind: labelledAnswers,
  objective: implicitPrmObjective,
  withoutRounds:
    'it trains a reward model, which writes no solutions; label candidates with another method first',
});

export const implicitPrm = {
  ...method,
  judge(config: z.output<typeof method.schema>) {
    return implicitSettings(config, { template: config.question.template, beta: config.implicit_prm.beta });
  },
};
