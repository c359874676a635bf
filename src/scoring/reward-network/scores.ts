/** Scores of the reward network for a step with a verdict appended, or for the step itself. */

import type { VerdictTokenizer } from '../../data/verdict.js';
import type { Decoder, LinearHead, Role } from '../../models/decoder.js';
import { groupBySize } from '../../sequences/batching.js';
import { overGroups } from '../../sequences/divided.js';
import { type ForwardSequence, hiddenStates, scalarsAt } from '../../sequences/forward.js';
import { branchedSequence, type VerdictSequence } from '../../sequences/sequence.js';
import type { SettingsOf } from '../settings.js';

export type PairMode = SettingsOf<'reward_network'>['pair_mode'];

/** A solution as the reward network reads it. */
export interface RewardSequence extends ForwardSequence {
  /** Rows whose score counts for "right" and for "wrong"; in `step` mode one row for both. */
  readonly positive: readonly number[];
  readonly negative: readonly number[];
}

/** A reason for each judged step of a solution, with its line break; undefined where it did not end. */
export type StepReasons = readonly (readonly number[] | undefined)[];

/** @param reasons with `pair_mode: label`, the text between each step and its verdict */
export function rewardSequence(
  { solution, rowId }: Pick<VerdictSequence, 'solution' | 'rowId'>,
  { template, tailIds }: Pick<VerdictTokenizer, 'template' | 'tailIds'>,
  mode: PairMode,
  reasons: StepReasons = [],
): RewardSequence {
  const words = mode === 'label' ? [template.positiveIds, template.negativeIds] : [[]];
  const places = solution.verdicts.map(({ at }, i) => ({
    at,
    answers: mode === 'label' ? words.map((word) => [...(reasons[i] ?? []), ...word]) : words,
  }));
  const { answers, ...sequence } = branchedSequence(solution.trunk.ids, places, tailIds, { whole: true });
  return {
    ...sequence,
    rowId,
    positive: answers.map(([right]) => (right as { end: number }).end),
    negative: answers.map((found) => (found.at(-1) as { end: number }).end),
  };
}

/** The network's scores of both verdicts on one step. In `step` mode the wrong verdict scores minus the right one. */
export interface VerdictScores {
  readonly positive: number;
  readonly negative: number;
}

/** Scores by sequence and verdict; undefined if the signal stopped it. */
export async function scoreVerdicts(
  roles: { readonly decoder: Decoder; readonly reward: Role; readonly rewardHead: LinearHead },
  sequences: readonly RewardSequence[],
  options: {
    readonly mode: PairMode;
    readonly microBatchTokens: number;
    readonly signal?: AbortSignal | undefined;
  },
): Promise<VerdictScores[][] | undefined> {
  const { decoder, reward, rewardHead } = roles;
  const { device } = decoder;
  const score = async (group: readonly RewardSequence[]): Promise<VerdictScores[][]> => {
    const rows = group.map(({ positive, negative }) => [...positive, ...negative]);
    if (rows.every((list) => list.length === 0)) return group.map(() => []);
    const found = device.scope(
      () => scalarsAt(hiddenStates(decoder, reward, group), rewardHead, rows),
      'reward network',
    );
    const values = await found.readFloats();
    found.dispose();
    let at = 0;
    return group.map(({ positive }) => {
      const n = positive.length;
      const first = at;
      at += 2 * n;
      return positive.map((_, i) => {
        const right = values[first + i] as number;
        const other = values[first + n + i] as number;
        return { positive: right, negative: options.mode === 'label' ? other : -other };
      });
    });
  };
  const groups = groupBySize(sequences, ({ ids }) => ids.length, options.microBatchTokens);
  return (await overGroups(device, groups, score, options))?.flat();
}
