/** Rewards that the environment of an episode gave to its turns. */
import type { SolutionReward } from './reward.js';

/** The sum over the turns, and the reward of each; a turn without one has 0. */
export function environmentReward(): SolutionReward {
  return {
    name: 'environment',
    score: async (solutions) =>
      solutions.map(({ turnRewards = [] }) => {
        const steps = turnRewards.map((reward) => reward ?? 0);
        return { value: steps.reduce((sum, reward) => sum + reward, 0), steps };
      }),
  };
}
