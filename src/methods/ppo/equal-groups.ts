/** Tells once that group methods have nothing to learn from: rewards that are equal in every group. */
import { algorithmOf, comparesGroups } from './algorithms.js';
import type { CreditedSolutions } from './rollout.js';
import type { PpoSettings } from './settings.js';

/** Number of rollout batches in a row. */
const IN_A_ROW = 3;

/**
 * A function that takes the groups of each rollout batch and returns the warning when it is due.
 *
 * @param batches of the whole stage: a short one is warned of sooner
 */
export function equalGroupsWatch(
  settings: Pick<PpoSettings, 'algorithm' | 'group_baseline'>,
  batches: number,
): (groups: readonly Pick<CreditedSolutions, 'answers'>[]) => string | undefined {
  const needed = Math.min(IN_A_ROW, batches);
  // Rewards of tokens differ where those of outcomes do not.
  const isWhole = algorithmOf(settings).advantage !== 'process';
  let seen = comparesGroups(settings) && isWhole ? 0 : Number.NEGATIVE_INFINITY;
  return (groups) => {
    const rewards = groups.map(({ answers }) => [...new Set(answers.map(({ reward }) => reward))]);
    const isEqual = groups.length > 0 && rewards.every((own) => own.length === 1);
    seen = isEqual ? seen + 1 : Math.min(seen, 0);
    if (seen !== needed) return undefined;
    seen = Number.NEGATIVE_INFINITY;
    const all = new Set(rewards.flat());
    const [value] = all;
    const said = all.size === 1 ? ` (${Number((value as number).toPrecision(3))})` : '';
    const answers = groups.flatMap((group) => group.answers);
    const cut = Math.floor((100 * answers.filter(({ truncated }) => truncated).length) / answers.length);
    return (
      `in ${needed === 1 ? 'the rollout batch' : `${needed} rollout batches in a row`} all solutions of each problem have the same reward${said}, so that advantages are 0 and the policy learns nothing: ` +
      `${cut >= 50 ? `raise rollout.max_new_tokens, at which ${cut} % of the last ones are cut off, or ` : ''}` +
      'take harder or easier problems, raise rollout.num_generations or rollout.temperature, or choose a reward that tells solutions apart'
    );
  };
}
