/** Advantages of enumerated answers. */
import type { Device } from '../../runtime/device.js';
import {
  assemble,
  estimate,
  type GaeSettings,
  gaeAdvantage,
  whitened,
} from '../../train/policy/advantage.js';
import type { Advantage } from '../../train/policy/records.js';
import type { PpoConfig } from './config.js';
import type { Question, VerdictAnswer } from './rollout.js';

export type CreditSettings = GaeSettings & Pick<PpoConfig, 'rollout'>;

/**
 * Sampled answers get advantages by GAE, optionally whitened over the batch. The weight of an enumerated answer is its
 * probability; its advantage is the distance from the expectation over the question's answers.
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
      const final = settings.whiten_advantages ? await whitened(device, advantages) : advantages;
      return assemble(questions, rewards, { advantages: final, returns, shareOf: probabilityOf });
    },
  };
}

function probabilityOf({ oldLogprobs }: VerdictAnswer): number {
  return Math.exp(oldLogprobs.reduce((sum, logprob) => sum + logprob, 0));
}
