// Finds test problems and steps that are also in the training data: their scores say little.
import { hash48, wordsHash } from '../random/text-hash.js';
import { normalizeProblem, type Step } from '../records/record.js';
import { readableStep } from '../records/turns.js';

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
 * Fingerprint of a step's text, with the calls of a turn, 48 bits. Steps with the same one stand word for word in both
 * places; letter case and runs of white space do not count.
 */
export function stepKey(step: Pick<Step, 'text' | 'message'>): number {
  return hash48(normalizeProblem(readableStep(step)));
}

/** Does this step of a held-out solution stand word for word in the training part? Both indices from 0. */
export type SeenSteps = (place: { readonly solution: number; readonly step: number }) => boolean;

/** Compares two lists of problems, each of which may repeat a problem. Only the second stays in memory. */
export function problemOverlap(train: Iterable<ProblemKey>, test: Iterable<ProblemKey>): Overlap {
  return problemOverlaps(train, { test }).test;
}

/** The same for several lists beside one, which is read once. */
export function problemOverlaps<Name extends string>(
  train: Iterable<ProblemKey>,
  tests: Readonly<Record<Name, Iterable<ProblemKey>>>,
): Record<Name, Overlap> {
  const names = Object.keys(tests) as Name[];
  const lists = names.map((name) => new ComparedProblems(tests[name]));
  for (const key of train) for (const list of lists) list.compare(key);
  return Object.fromEntries(names.map((name, i) => [name, lists[i]?.overlap()])) as Record<Name, Overlap>;
}

/** Problems that others are compared with, one after the other. */
class ComparedProblems {
  /** The first index of each distinct problem, by its hash. */
  private readonly places = new Map<number, number>();
  private readonly nearTo: (key: ProblemKey) => readonly ProblemKey[];
  private readonly same = new Set<number>();
  private readonly near = new Set<number>();

  constructor(problems: Iterable<ProblemKey>) {
    const distinct: ProblemKey[] = [];
    let index = 0;
    for (const key of problems) {
      if (!this.places.has(key.hash)) {
        this.places.set(key.hash, index);
        distinct.push(key);
      }
      index++;
    }
    this.nearTo = nearAmong(distinct);
  }

  compare(key: ProblemKey): void {
    if (this.places.has(key.hash)) this.same.add(key.hash);
    for (const { hash } of this.nearTo(key)) this.near.add(hash);
  }

  overlap(): Overlap {
    const { same } = this;
    const near = new Set([...this.near].filter((hash) => !same.has(hash)));
    const examples = (hashes: ReadonlySet<number>) =>
      Array.from(hashes, (hash) => this.places.get(hash) as number)
        .sort((a, b) => a - b)
        .slice(0, EXAMPLES);
    return { same: same.size, near: near.size, examples: [...examples(same), ...examples(near)] };
  }
}

/** Whether a problem is one of `problems`, word for word (letter case and white space apart) or nearly; undefined: neither. */
export function likenessTo(problems: Iterable<ProblemKey>): (key: ProblemKey) => 'same' | 'near' | undefined {
  const known = new Map<number, ProblemKey>();
  for (const key of problems) known.set(key.hash, key);
  const nearTo = nearAmong(known.values());
  return (key) => (known.has(key.hash) ? 'same' : nearTo(key).length > 0 ? 'near' : undefined);
}

/** The problems among `keys` that are near a problem. */
function nearAmong(keys: Iterable<ProblemKey>): (key: ProblemKey) => ProblemKey[] {
  const withRun = new Map<number, ProblemKey[]>();
  for (const key of keys) {
    for (const run of key.sketch) {
      const known = withRun.get(run);
      if (known === undefined) withRun.set(run, [key]);
      else known.push(key);
    }
  }
  return ({ sketch }) => {
    const common = new Map<ProblemKey, number>();
    for (const run of sketch) {
      for (const key of withRun.get(run) ?? []) common.set(key, (common.get(key) ?? 0) + 1);
    }
    // A share is at most that of the common hashes in the longer sketch.
    return [...common].flatMap(([key, count]) =>
      count >= NEAR * Math.max(sketch.length, key.sketch.length) && resemblance(sketch, key.sketch) >= NEAR
        ? [key]
        : [],
    );
  };
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
