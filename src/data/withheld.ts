/** Labels that training does not get, or gets wrong: few labelled solutions among many, and noise as of human labels. */
import type { StepLabel } from '../records/record.js';
import type { BalancedSolution } from './balance.js';
import { smallestRanks } from './split.js';

/** Keys are those of a run's `data` section. */
export interface WithheldOptions {
  readonly seed: number;
  /** Solutions that keep their labels. */
  readonly labelled: number | 'all';
  /** Share of their labels that are flipped. */
  readonly label_noise: number;
}

/** XORed into the seed, so that flips do not depend on the choice of labelled steps. */
const LABELLED = 0x6c616265;
const REASONED = 0x72656173;
const NOISE = 0x6e6f6973;

/** Ranks of the steps of a solution under a seed, by its index. */
type RanksOf = (index: number, seed: number) => readonly number[];

/**
 * The same solutions; those that are not sampled to stay labelled have no label left.
 *
 * @param ranksOf ranks of the steps of a solution under a seed (`sampleRanks`), by its `index`; called only where needed
 */
export function withholdLabels(
  solutions: readonly BalancedSolution[],
  ranksOf: RanksOf,
  { seed, labelled, label_noise: noise }: WithheldOptions,
): readonly BalancedSolution[] {
  const of = (domain: number) => (seed ^ domain) >>> 0;
  const kept = chosenSolutions(solutions, ranksOf, labelled, of(LABELLED));
  return solutions.map((solution, i) => {
    const { index, labels } = solution;
    if (kept && !kept.has(i)) return { index, labels: labels.map(() => null) };
    if (noise === 0) return solution;
    const ranks = ranksOf(index, of(NOISE));
    return {
      index,
      labels: labels.map((label, step) => ((ranks[step] ?? 1) < noise ? flipped(label) : label)),
    };
  });
}

/**
 * The solutions that keep their reasons, as their `index`; undefined if all do.
 *
 * @param ranksOf as in `withholdLabels`
 */
export function solutionsWithReasons(
  solutions: readonly Pick<BalancedSolution, 'index'>[],
  ranksOf: RanksOf,
  { seed, rationales }: { readonly seed: number; readonly rationales: number | 'all' },
): ReadonlySet<number> | undefined {
  const kept = chosenSolutions(solutions, ranksOf, rationales, (seed ^ REASONED) >>> 0);
  return kept && new Set([...kept].map((i) => (solutions[i] as BalancedSolution).index));
}

/** Places of the `count` solutions whose last step has the smallest rank; undefined for all. */
function chosenSolutions(
  solutions: readonly Pick<BalancedSolution, 'index'>[],
  ranksOf: RanksOf,
  count: number | 'all',
  seed: number,
): ReadonlySet<number> | undefined {
  if (count === 'all') return undefined;
  return new Set(
    smallestRanks(
      solutions.map(({ index }) => ranksOf(index, seed).at(-1) ?? 0),
      count,
    ),
  );
}

function flipped(label: StepLabel): StepLabel {
  return label === null ? null : label === 1 ? 0 : 1;
}
