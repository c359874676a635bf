import { createHash } from 'node:crypto';
import { DataError } from './data-error.js';
import { normalizeProblem, type VerdictSample } from './record.js';

/** How samples are divided. Keys are those of a run's `data` section. */
export interface SplitOptions {
  readonly seed: number;
  /** Shares of train, validation and test; they need not add up to 1. Default [8, 1, 1]. */
  readonly split?: readonly [number, number, number];
  /**
   * What stays together. `problem` (default): all samples of a problem, since siblings of one prefix on both sides
   * would let the test set be memorised. `sample`: each sample by itself.
   */
  readonly split_unit?: 'problem' | 'sample';
}

export const PARTS = ['train', 'validation', 'test'] as const;
export type Part = (typeof PARTS)[number];

/**
 * A function that tells the part of a sample from its text alone: a hash of the seed and the normalised problem (or of
 * the whole sample) read as a number in [0, 1) and compared with the cumulative shares. Adding, removing or reordering
 * data never moves a sample to another part, so parts can be taken from a stream; the shares are met only on average.
 */
export function splitter(options: SplitOptions): (sample: Pick<VerdictSample, 'problem' | 'steps'>) => Part {
  const shares = options.split ?? [8, 1, 1];
  const total = shares[0] + shares[1] + shares[2];
  if (!shares.every((share) => share >= 0) || !(total > 0) || !Number.isFinite(total)) {
    throw new DataError(
      'option',
      `data.split is [${shares.join(', ')}]; expected three shares such as [8, 1, 1]`,
    );
  }
  const trainEnd = shares[0] / total;
  const validationEnd = (shares[0] + shares[1]) / total;
  const perSample = options.split_unit === 'sample';
  return (sample) => {
    const problem = normalizeProblem(sample.problem);
    const at = fraction(options.seed, perSample ? [problem, ...sample.steps] : [problem]);
    if (at < trainEnd) return 'train';
    // With a test share of 0 rounding must not leave a sliver of it.
    return at < validationEnd || shares[2] === 0 ? 'validation' : 'test';
  };
}

/** Divides samples in memory; order is kept within each part. */
export function splitSamples(
  samples: Iterable<VerdictSample>,
  options: SplitOptions,
): Readonly<Record<Part, readonly VerdictSample[]>> {
  const partOf = splitter(options);
  const parts: Record<Part, VerdictSample[]> = { train: [], validation: [], test: [] };
  for (const sample of samples) parts[partOf(sample)].push(sample);
  return parts;
}

/**
 * As many samples of the rarer class as of the commoner one, by leaving out samples of the commoner class; which ones
 * depends on the seed and on their own text. Order is kept.
 */
export function balanceClasses(samples: readonly VerdictSample[], seed: number): readonly VerdictSample[] {
  const right = samples.filter((sample) => sample.label === 1);
  const wrong = samples.filter((sample) => sample.label === 0);
  const [rarer, commoner] = right.length < wrong.length ? [right, wrong] : [wrong, right];
  const kept = new Set([...rarer, ...takeSamples(commoner, rarer.length, seed)]);
  return samples.filter((sample) => kept.has(sample));
}

/** At most `count` samples; which ones depends on the seed and on their own text. Order is kept. */
export function takeSamples(
  samples: readonly VerdictSample[],
  count: number,
  seed: number,
): readonly VerdictSample[] {
  if (samples.length <= count) return samples;
  const ranked = samples
    .map((sample, index) => ({ index, at: fraction(seed, ['take', sample.group, ...sample.steps]) }))
    .sort((a, b) => a.at - b.at || a.index - b.index);
  const kept = new Set(ranked.slice(0, count).map(({ index }) => index));
  return samples.filter((_, index) => kept.has(index));
}

/** What two sets of problems share: a test problem that was trained on makes its score worthless. */
export interface Overlap {
  /** Distinct problems of the second set that are also in the first. */
  readonly count: number;
  /** Some of them, as the second set spells them. */
  readonly examples: readonly string[];
}

/** Compares two sets by normalised problem text. */
export function problemOverlap(
  train: Iterable<{ readonly problem: string }>,
  test: Iterable<{ readonly problem: string }>,
): Overlap {
  const known = new Set<string>();
  for (const { problem } of train) known.add(normalizeProblem(problem));
  const shared = new Map<string, string>();
  for (const { problem } of test) {
    const text = normalizeProblem(problem);
    if (known.has(text) && !shared.has(text)) shared.set(text, problem);
  }
  return { count: shared.size, examples: [...shared.values()].slice(0, 5) };
}

/** A hash of texts as a number in [0, 1) with 48 bits. */
function fraction(seed: number, texts: readonly string[]): number {
  const hash = createHash('sha256').update(String(seed));
  for (const text of texts) hash.update('\0').update(text);
  return hash.digest().readUIntBE(0, 6) / 2 ** 48;
}
