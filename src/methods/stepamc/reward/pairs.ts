/** The pairs that the reward network compares: two verdicts on one step, or two steps of one problem. */
import type { Dataset } from '../../../data/dataset.js';
import { grouped } from '../../../native/grouped.js';
import { problemText } from '../../../records/same-text.js';
import type { PairMode, RewardSequence, StepReasons } from '../../../scoring/reward-network/scores.js';
import type { VerdictSequence } from '../../../sequences/sequence.js';

/** Two rows of a unit whose scores are compared: sequence within the unit, and row within the sequence. */
export interface RewardPair {
  readonly chosen: readonly [sequence: number, row: number];
  readonly rejected: readonly [sequence: number, row: number];
}

/** Sequences that must be computed together because pairs connect them. */
export interface RewardUnit {
  readonly sequences: readonly RewardSequence[];
  readonly pairs: readonly RewardPair[];
  readonly tokens: number;
}

/**
 * Units of the training data. In `label` mode each solution is a unit: every labelled step gives the pair of its verdicts.
 * In `step` mode each problem is a unit: every wrong step is compared with the right ones that follow the same steps or,
 * if there are none, with the nearest right step of the problem.
 *
 * @param problems the problem of each sequence
 */
export function rewardUnits(
  sequences: Dataset<VerdictSequence>,
  rewards: readonly RewardSequence[],
  problems: readonly string[],
  mode: PairMode,
): RewardUnit[] {
  if (mode === 'label') {
    return rewards.map((reward, i) => unit([reward], labelPairs(sequences.get(i), reward)));
  }
  const groups = grouped(problems.keys(), (i) => problemText(problems[i] as string));
  return [...groups.values()].map((members) => {
    const own = members.map((i) => rewards[i] as RewardSequence);
    const pairs = stepPairs(
      members.map((i) => sequences.get(i)),
      own,
    );
    const used = new Set(pairs.flatMap(({ chosen, rejected }) => [chosen[0], rejected[0]]));
    const kept = own.flatMap((_, i) => (used.has(i) ? [i] : []));
    const renumbered = (at: readonly [number, number]) => [kept.indexOf(at[0]), at[1]] as const;
    return unit(
      kept.map((i) => own[i] as RewardSequence),
      pairs.map(({ chosen, rejected }) => ({ chosen: renumbered(chosen), rejected: renumbered(rejected) })),
    );
  });
}

function unit(sequences: readonly RewardSequence[], pairs: readonly RewardPair[]): RewardUnit {
  return { sequences, pairs, tokens: sequences.reduce((sum, { ids }) => sum + ids.length, 0) };
}

/** The unit of one solution whose verdicts follow reasons; a step whose reason did not end gives no pair. */
export function reasonedUnit(
  sequence: VerdictSequence,
  reward: RewardSequence,
  reasons: StepReasons,
): RewardUnit {
  return unit(
    [reward],
    labelPairs(sequence, reward, (place) => reasons[place] !== undefined),
  );
}

function labelPairs(
  { verdicts }: VerdictSequence,
  { positive, negative }: RewardSequence,
  isRead: (place: number) => boolean = () => true,
): RewardPair[] {
  return verdicts.flatMap(({ label }, i) => {
    if (label === null || !isRead(i)) return [];
    const right = [0, (label === 1 ? positive : negative)[i] as number] as const;
    const wrong = [0, (label === 1 ? negative : positive)[i] as number] as const;
    return [{ chosen: right, rejected: wrong }];
  });
}

interface JudgedPlace {
  readonly at: readonly [number, number];
  readonly step: number;
  /** The tokens before the step. */
  readonly context: string;
}

function stepPairs(sequences: readonly VerdictSequence[], rewards: readonly RewardSequence[]): RewardPair[] {
  const right: JudgedPlace[] = [];
  const wrong: JudgedPlace[] = [];
  sequences.forEach(({ verdicts, solution }, i) => {
    verdicts.forEach(({ label, step }, j) => {
      if (label === null) return;
      const start = solution.trunk.steps.find((span) => span.step === step)?.start ?? 0;
      const context = solution.trunk.ids.slice(0, start).join();
      const row = rewards[i]?.positive[j] as number;
      (label === 1 ? right : wrong).push({ at: [i, row], step, context });
    });
  });
  return wrong.flatMap((rejected) => {
    const siblings = right.filter(({ context }) => context === rejected.context);
    const distance = ({ step }: JudgedPlace) => Math.abs(step - rejected.step);
    const nearest = right.toSorted((a, b) => distance(a) - distance(b)).slice(0, 1);
    return (siblings.length > 0 ? siblings : nearest).map(({ at }) => ({
      chosen: at,
      rejected: rejected.at,
    }));
  });
}
