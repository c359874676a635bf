import { badOption } from '../files/data-error.js';
import type { StepLabel } from '../records/record.js';
import { type Dataset, indices } from './dataset.js';
import { smallestRanks } from './split.js';

/** `none`: unchanged; `downsample`: fewer steps of the more frequent class; `upsample`: repeats the rarer class. */
export const BALANCES = ['none', 'downsample', 'upsample'] as const;
export type Balance = (typeof BALANCES)[number];

/** The labels of a solution's steps, and the ranks that select steps (see `sampleRanks`). */
export interface RankedLabels {
  readonly labels: readonly StepLabel[];
  readonly ranks: readonly number[];
}

/** A solution to train on: its index in the input, and the labels to use. */
export interface BalancedSolution {
  readonly index: number;
  readonly labels: readonly StepLabel[];
}

/**
 * The solutions that `max_samples` and `balance` select for training: indices into the input, with their labels.
 *
 * @param ranksOf the ranks of a solution's steps, see `sampleRanks`; called only if something is to be selected
 * @param rankOf the rank of a whole solution, for callers that have it by itself
 */
export function chooseToTrain(
  labels: Dataset<readonly StepLabel[]>,
  ranksOf: (index: number) => readonly number[],
  { max_samples, balance }: { readonly max_samples: number | 'all'; readonly balance: Balance },
  rankOf: (index: number) => number = (index) => ranksOf(index).at(-1) ?? 0,
): readonly BalancedSolution[] {
  const kept =
    max_samples === 'all' || max_samples >= labels.length
      ? indices(labels)
      : smallestRanks(
          Float64Array.from(labels, (_, index) => rankOf(index)),
          max_samples,
        );
  if (balance === 'none') return kept.map((index) => ({ index, labels: labels.get(index) }));
  const ranked = kept.map((index): RankedLabels => ({ labels: labels.get(index), ranks: ranksOf(index) }));
  return balanceClasses(ranked, balance).map(({ index, labels }) => ({
    index: kept[index] as number,
    labels,
  }));
}

/**
 * Makes both classes equally frequent. Steps that are not selected lose their label and stay as context; a solution
 * without labels is dropped. `upsample` repeats solutions with only their labels of the rarer class.
 *
 * @throws DataError if one class is missing
 */
export function balanceClasses(
  solutions: readonly RankedLabels[],
  balance: Balance,
): readonly BalancedSolution[] {
  const whole = solutions.map(({ labels }, index) => ({ index, labels }));
  if (balance === 'none') return whole;
  const right = places(solutions, 1);
  const wrong = places(solutions, 0);
  const [rarer, commoner] = right.length < wrong.length ? [right, wrong] : [wrong, right];
  if (rarer.length === 0) {
    throw badOption(
      `data.balance is ${balance}, and all ${commoner.length} training steps are of one class; set it to none`,
    );
  }
  if (balance === 'downsample') return keep(whole, [...rarer, ...first(commoner, rarer.length)]);
  const times = Math.floor(commoner.length / rarer.length);
  const copies = Array.from({ length: times - 1 }, () => keep(whole, rarer));
  const rest = keep(whole, first(rarer, commoner.length - times * rarer.length));
  return [...whole, ...copies.flat(), ...rest];
}

interface Place {
  readonly solution: number;
  readonly step: number;
  readonly rank: number;
}

function places(solutions: readonly RankedLabels[], label: 1 | 0): Place[] {
  return solutions.flatMap(({ labels, ranks }, solution) =>
    labels.flatMap((found, step) =>
      found === label ? [{ solution, step, rank: ranks[step] as number }] : [],
    ),
  );
}

function first(all: readonly Place[], count: number): Place[] {
  const ranks = all.map(({ rank }) => rank);
  return smallestRanks(ranks, count).map((i) => all[i] as Place);
}

/** The solutions with only the labels at `kept`. */
function keep(solutions: readonly BalancedSolution[], kept: readonly Place[]): BalancedSolution[] {
  const steps = new Map<number, Set<number>>();
  for (const { solution, step } of kept) {
    const known = steps.get(solution);
    if (known === undefined) steps.set(solution, new Set([step]));
    else known.add(step);
  }
  return solutions.flatMap(({ index, labels }) => {
    const mine = steps.get(index);
    return mine === undefined
      ? []
      : [{ index, labels: labels.map((label, i) => (mine.has(i) ? label : null)) }];
  });
}
