// Finds test problems and steps that are also in the training data: their scores say little.
import { hash48, wordsHash } from '../random/text-hash.js';
import { normalizeProblem } from '../records/record.js';

/** Fingerprint of a problem. */
export interface ProblemKey {
  /** Hash of the normalised text, 48 bits. */
  readonly hash: number;
  /** The smallest hashes of its 5-word shingles, ascending; empty for a text with few words. */
  readonly sketch: Uint32Array;
}

/** Overlap of two sets of problems. */
export interface Overlap {
  /** Distinct problems of the second set that are also in the first. */
  readonly same: number;
  /** Further ones that share half or more of their wording with a problem of the first set. */
  readonly near: number;
  /** Indices into the second set: some that are the same, then some that are near. */
  readonly examples: readonly number[];
}

const SHINGLE_WORDS = 5;

/** Texts with fewer words (that contain letters) are not compared by wording. */
const MIN_WORDS = 8;

/** The smallest hashes of a set are a uniform sample of it, so they estimate how much two sets share (Broder, 1997). */
export const SKETCH_SIZE = 16;

/** Two problems are near from this share of common shingles. */
const NEAR = 0.5;

/** Candidates that are compared in full, those with the most common hashes first. */
const COMPARED = 5;

const EXAMPLES = 3;

export function problemKey(problem: string): ProblemKey {
  const text = normalizeProblem(problem);
  const hash = hash48(text);
  const words = text.match(/[\p{L}\p{N}]+/gu) ?? [];
  const shingles = new Set<number>();
  if (words.filter((word) => /\p{L}/u.test(word)).length < MIN_WORDS)
    return { hash, sketch: new Uint32Array() };
  for (let i = 0; i + SHINGLE_WORDS <= words.length; i++)
    shingles.add(wordsHash(words, i, i + SHINGLE_WORDS));
  return { hash, sketch: Uint32Array.from(shingles).sort().slice(0, SKETCH_SIZE) };
}

/**
 * Fingerprint of a step's text, 48 bits. Steps with the same one stand word for word in both places; letter case and runs
 * of white space do not count.
 */
export function stepKey(text: string): number {
  return hash48(normalizeProblem(text));
}

/** Does this step of a held-out solution stand word for word in the training part? Both indices from 0. */
export type SeenSteps = (place: { readonly solution: number; readonly step: number }) => boolean;

/** Compares two lists of problems, each of which may repeat a problem. */
export function problemOverlap(train: Iterable<ProblemKey>, test: Iterable<ProblemKey>): Overlap {
  const likeness = likenessTo(train);
  const seen = new Set<number>();
  const same: number[] = [];
  const near: number[] = [];
  let index = 0;
  for (const key of test) {
    if (!seen.has(key.hash)) {
      const found = likeness(key);
      if (found === 'same') same.push(index);
      else if (found === 'near') near.push(index);
    }
    seen.add(key.hash);
    index++;
  }
  return {
    same: same.length,
    near: near.length,
    examples: [...same.slice(0, EXAMPLES), ...near.slice(0, EXAMPLES)],
  };
}

/** Whether a problem is one of `problems`, word for word (letter case and white space apart) or nearly; undefined: neither. */
export function likenessTo(problems: Iterable<ProblemKey>): (key: ProblemKey) => 'same' | 'near' | undefined {
  const known = new Map<number, ProblemKey>();
  for (const key of problems) known.set(key.hash, key);
  const withRun = new Map<number, ProblemKey[]>();
  for (const key of known.values()) {
    for (const run of key.sketch) {
      const keys = withRun.get(run);
      if (keys === undefined) withRun.set(run, [key]);
      else keys.push(key);
    }
  }
  return (key) => (known.has(key.hash) ? 'same' : isNearAny(key, withRun) ? 'near' : undefined);
}

function isNearAny({ sketch }: ProblemKey, withRun: ReadonlyMap<number, readonly ProblemKey[]>): boolean {
  const common = new Map<ProblemKey, number>();
  for (const run of sketch) {
    for (const key of withRun.get(run) ?? []) common.set(key, (common.get(key) ?? 0) + 1);
  }
  return [...common]
    .sort((a, b) => b[1] - a[1])
    .slice(0, COMPARED)
    .some(([key]) => resemblance(sketch, key.sketch) >= NEAR);
}

/** Estimates |a ∩ b| / |a ∪ b| of the sets behind two sketches: the share of the union's smallest hashes in both. */
function resemblance(a: Uint32Array, b: Uint32Array): number {
  let [i, j, taken, both] = [0, 0, 0, 0];
  while (taken < SKETCH_SIZE && (i < a.length || j < b.length)) {
    const left = a[i] ?? Number.POSITIVE_INFINITY;
    const right = b[j] ?? Number.POSITIVE_INFINITY;
    if (left === right) both++;
    if (left <= right) i++;
    if (right <= left) j++;
    taken++;
  }
  return taken === 0 ? 0 : both / taken;
}
