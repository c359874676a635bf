import { createHash } from 'node:crypto';
import { badOption } from '../files/data-error.js';
import { hash48 } from '../random/text-hash.js';
import { normalizeProblem, type VerdictSample } from '../records/record.js';

/** Options of the split. Keys are those of a run's `data` section. */
export interface SplitOptions {
  readonly seed: number;
  /** Shares of train, validation and test; they need not add up to 1. Default [8, 1, 1]. */
  readonly split?: readonly [number, number, number];
  /**
   * The unit that is never divided. `problem` (default): all samples of a problem, since steps with the same prefix on
   * both sides would leak the test set. `sample`: each sample by itself.
   */
  readonly split_unit?: 'problem' | 'sample';
}

export type Part = 'train' | 'validation' | 'test';
export const PARTS = ['train', 'validation', 'test'] as const satisfies readonly Part[];

/**
 * A function from the text of a sample to its part: a hash of the seed and the normalised problem (or of the whole
 * sample), as a number in [0, 1), is compared with the cumulative shares. Adding, removing or reordering data never
 * moves a sample to another part, so a stream can be split; the shares hold only on average.
 */
export function splitter(options: SplitOptions): (sample: Pick<VerdictSample, 'problem' | 'steps'>) => Part {
  const shares = options.split ?? [8, 1, 1];
  const total = shares[0] + shares[1] + shares[2];
  if (!shares.every((share) => share >= 0) || !(total > 0) || !Number.isFinite(total)) {
    throw badOption(`data.split is [${shares.join(', ')}]; expected three shares such as [8, 1, 1]`);
  }
  const trainEnd = shares[0] / total;
  const validationEnd = (shares[0] + shares[1]) / total;
  const perSample = options.split_unit === 'sample';
  return (sample) => {
    const problem = normalizeProblem(sample.problem);
    const at = fraction(options.seed, perSample ? [problem, ...sample.steps] : [problem]);
    if (at < trainEnd) return 'train';
    // With a test share of 0, rounding must not leave a tiny test part.
    return at < validationEnd || shares[2] === 0 ? 'validation' : 'test';
  };
}

/**
 * Pseudo-random ranks in [0, 1) of a solution and its steps: the n smallest ranks of any set are a uniform sample of
 * it, the same for the same seed whatever else is in the data.
 *
 * @returns one number for each step, from the problem and the steps up to it; the last one is the rank of the whole
 * solution
 */
export function sampleRanks(seed: number, problem: string, steps: readonly string[]): number[] {
  const hash = createHash('sha256').update(`${seed}\0take\0${normalizeProblem(problem)}`);
  return steps.map((step) => {
    hash.update('\0').update(step);
    return hash.copy().digest().readUIntBE(0, 6) / 2 ** 48;
  });
}

/** A pseudo-random rank in [0, 1) that decides about the copies of a solution; independent of {@link sampleRanks} and of the split. */
export function copyRank(seed: number, { problem, steps }: Pick<VerdictSample, 'problem' | 'steps'>): number {
  return fraction(seed, ['copies', normalizeProblem(problem), ...steps]);
}

/** The indices of the `count` smallest ranks, in ascending order; equal ranks in their own order. */
export function smallestRanks(ranks: ArrayLike<number>, count: number): number[] {
  const { length } = ranks;
  const sorted = Float64Array.from(ranks).sort();
  const last = length <= count ? Number.POSITIVE_INFINITY : (sorted[count - 1] ?? Number.NEGATIVE_INFINITY);
  let ties = count - sorted.indexOf(last);
  const kept: number[] = [];
  for (let index = 0; index < length; index++) {
    const rank = ranks[index] as number;
    if (rank < last || (rank === last && ties-- > 0)) kept.push(index);
  }
  return kept;
}

/** A hash of texts as a number in [0, 1) with 48 bits. */
function fraction(seed: number, texts: readonly string[]): number {
  return hash48([String(seed), ...texts].join('\0')) / 2 ** 48;
}
