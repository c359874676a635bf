/** `method: solution_sft`: supervised fine-tuning on whole answers. */
import { nll } from '../../objectives/nll.js';
import { learnedTokens } from '../../scoring/implicit/items.js';
import { allAnswers } from './answers/kinds.js';
import type { OfflineObjective } from './answers/objective.js';
import { offlineMethod } from './method.js';

/** −mean log-prob over all learned tokens of the optimizer batch. */
export function likelihood(): OfflineObjective {
  return {
    needsReference: false,
    needsMismatched: false,
    dropout: true,
    begin(batch, _, means) {
      const tokens = batch
        .flatMap(({ answers }) => answers)
        .reduce((sum, answer) => sum + learnedTokens(answer), 0);
      means.mean('targets', tokens, 1);
      return {
        terms({ logprobs }) {
          const weights = logprobs.device.tensor(new Float32Array(logprobs.size).fill(1 / tokens));
          return [{ loss: nll(logprobs, weights), measure() {} }];
        },
      };
    },
  };
}

export const solutionSft = offlineMethod({
  name: 'solution_sft',
  about: 'Supervised fine-tuning on whole answers; the prompt is not learned',
  defaults: { learning_rate: 1e-4, batch_size: 32 },
  keys: {},
  kind: allAnswers,
  objective: likelihood,
  withoutRounds:
    'it learns every answer, its own mistakes among them; method rft learns the right ones of its samples',
});
