/** Advantages of enumerated answers. */
import { exp, square } from '../../native/elementary.js';
import type { Device } from '../../runtime/device.js';
import { assemble, estimate, type GaeSettings, gaeAdvantage } from '../../train/policy/advantage.js';
import type { Advantage } from '../../train/policy/records.js';
import type { PpoConfig } from './config.js';
import type { Question, VerdictAnswer } from './rollout.js';

export type CreditSettings = GaeSettings & Pick<PpoConfig, 'rollout'>;

/**
 * Sampled answers get advantages by GAE, optionally whitened over the batch. The weight of an enumerated answer is its
 * probability; its advantage is the distance from the expectation over the question's answers, and whitening counts it by
 * that weight.
 */
export function verdictAdvantage(device: Device, settings: CreditSettings): Advantage<Question> {
  if (settings.rollout === 'sample') return gaeAdvantage(device, settings);
  return {
    async credit(questions, rewards) {
      const { advantages, returns } = await estimate(device, questions, rewards, settings);
      let at = 0;
      questions.forEach(({ answers }, q) => {
        const totals = (rewards[q] ?? []).map(({ byToken }) => byToken.reduce((sum, r) => sum + r, 0));
        const shares = answers.map(probabilityOf);
        const mass = shares.reduce((sum, share) => sum + share, 0);
        const expected = totals.reduce((sum, total, a) => sum + (shares[a] as number) * total, 0) / mass;
        answers.forEach(({ tokens }, a) => {
          advantages.fill((totals[a] as number) - expected, at, at + tokens.length);
          at += tokens.length;
        });
      });
      const final = settings.whiten_advantages ? whitenedByShare(questions, advantages) : advantages;
      return assemble(questions, rewards, { advantages: final, returns, shareOf: probabilityOf });
    },
  };
}

/**
 * Mean 0 and standard deviation 1 under the policy: each answer counts as often as it would be sampled. The mean is 0
 * already, since every question's is.
 */
function whitenedByShare(questions: readonly Question[], advantages: Float32Array): Float32Array {
  const shares = questions.flatMap(({ answers }) =>
    answers.flatMap((answer) => answer.tokens.map(() => probabilityOf(answer))),
  );
  const mass = shares.reduce((sum, share) => sum + share, 0);
  const squares = shares.reduce((sum, share, i) => sum + share * square(advantages[i] as number), 0);
  const deviation = Math.sqrt(squares / mass);
  return deviation > 0 ? advantages.map((advantage) => advantage / deviation) : advantages;
}

function probabilityOf({ oldLogprobs }: VerdictAnswer): number {
  return exp(oldLogprobs.reduce((sum, logprob) => sum + logprob, 0));
}
