// Finds test problems and steps that are also in the training data: their scores say little.
import { NumberIndex } from '../native/number-index.js';
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

/** Letters of scripts that put no spaces between words: each counts as a word. */
const UNSPACED =
  '[\\p{sc=Han}\\p{sc=Hiragana}\\p{sc=Katakana}\\p{sc=Thai}\\p{sc=Lao}\\p{sc=Khmer}\\p{sc=Myanmar}]';
const HAS_UNSPACED = new RegExp(UNSPACED, 'u');
const UNSPACED_WORDS = new RegExp(`${UNSPACED}|(?:(?!${UNSPACED})[\\p{L}\\p{N}])+`, 'gu');

export function problemKey(problem: string): ProblemKey {
  const text = normalizeProblem(problem);
  const hash = hash48(text);
  const words = text.match(HAS_UNSPACED.test(text) ? UNSPACED_WORDS : /[\p{L}\p{N}]+/gu) ?? [];
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
  const compared = new ComparedProblems(test);
  for (const key of train) compared.compare(key);
  return compared.overlap();
}

/** Problems that others are compared with, one after the other. */
export class ComparedProblems {
  /** Distinct problems by their hashes. */
  private readonly problems = new NumberIndex();
  private readonly sketches = new Sketches();
  /** Index among all problems of the first like each distinct one. */
  private readonly places: number[] = [];
  private readonly isSame: Uint8Array;
  private readonly isNear: Uint8Array;

  constructor(problems: Iterable<ProblemKey>) {
    let place = 0;
    for (const { hash, sketch } of problems) {
      if (this.problems.add(hash) === this.places.length) {
        this.places.push(place);
        this.sketches.add(sketch);
      }
      place++;
    }
    this.isSame = new Uint8Array(this.places.length);
    this.isNear = new Uint8Array(this.places.length);
  }

  compare({ hash, sketch }: ProblemKey): void {
    const same = this.problems.indexOf(hash);
    if (same >= 0) this.isSame[same] = 1;
    for (const near of this.sketches.near(sketch)) this.isNear[near] = 1;
  }

  /** Forgets what was compared so far. */
  forget(): void {
    this.isSame.fill(0);
    this.isNear.fill(0);
  }

  /** The overlap with all problems that were compared. */
  overlap(): Overlap {
    const counts = { same: 0, near: 0 };
    const examples: Record<keyof typeof counts, number[]> = { same: [], near: [] };
    for (const [i, place] of this.places.entries()) {
      const kind = this.isSame[i] ? 'same' : this.isNear[i] ? 'near' : undefined;
      if (kind === undefined) continue;
      counts[kind]++;
      if (examples[kind].length < EXAMPLES) examples[kind].push(place);
    }
    return { ...counts, examples: [...examples.same, ...examples.near] };
  }
}

/** Whether a problem is one of `problems`, word for word (letter case and white space apart) or nearly; undefined: neither. */
export function likenessTo(problems: Iterable<ProblemKey>): (key: ProblemKey) => 'same' | 'near' | undefined {
  const known = new NumberIndex();
  const sketches = new Sketches();
  for (const { hash, sketch } of problems) {
    if (known.add(hash) === sketches.length) sketches.add(sketch);
  }
  return ({ hash, sketch }) =>
    known.indexOf(hash) >= 0 ? 'same' : sketches.near(sketch).length > 0 ? 'near' : undefined;
}

/** Sketches of problems, and the places of each of their hashes: some 16 bytes a hash, outside of the JavaScript heap. */
class Sketches {
  /** {@link SKETCH_SIZE} places for each sketch. */
  private hashes = new Uint32Array(64 * SKETCH_SIZE);
  private sizes = new Uint8Array(64);
  /** Number of sketches. */
  length = 0;
  private index: HashIndex | undefined;
  /** How many hashes of each sketch the one that is compared has; all 0 in between. */
  private common = new Uint8Array();

  add(sketch: Uint32Array): void {
    if (this.length === this.sizes.length) {
      this.hashes = enlarged(this.hashes, new Uint32Array(2 * this.hashes.length));
      this.sizes = enlarged(this.sizes, new Uint8Array(2 * this.sizes.length));
    }
    this.hashes.set(sketch, this.length * SKETCH_SIZE);
    this.sizes[this.length++] = sketch.length;
    this.index = undefined;
  }

  /** Numbers of the sketches that are near one, from 0 as they were added. */
  near(sketch: Uint32Array): readonly number[] {
    this.index ??= this.madeIndex();
    const { hashes, common } = this;
    const { starts, places, shift } = this.index;
    let found: number[] | undefined;
    for (const hash of sketch) {
      const bucket = bucketOf(hash, shift);
      const end = starts[bucket + 1] as number;
      for (let at = starts[bucket] as number; at < end; at++) {
        const place = places[at] as number;
        if (hashes[place] !== hash) continue;
        const number = Math.floor(place / SKETCH_SIZE);
        if (common[number] === 0) {
          found ??= [];
          found.push(number);
        }
        common[number] = (common[number] as number) + 1;
      }
    }
    if (found === undefined) return NONE;
    const near = found.filter((number) => this.isNear(number, sketch));
    for (const number of found) common[number] = 0;
    return near;
  }

  private isNear(number: number, sketch: Uint32Array): boolean {
    const size = this.sizes[number] as number;
    // A share is at most that of the common hashes in the longer sketch.
    if ((this.common[number] as number) < NEAR * Math.max(sketch.length, size)) return false;
    const first = number * SKETCH_SIZE;
    return resemblance(sketch, this.hashes.subarray(first, first + size)) >= NEAR;
  }

  private madeIndex(): HashIndex {
    this.common = new Uint8Array(this.length);
    const count = this.sizes.reduce((sum, size) => sum + size, 0);
    // Few hashes get so many buckets that most are empty.
    const bits = Math.min(26, Math.ceil(Math.log2(count + 1)) + (count < 2 ** 16 ? 4 : 0) + 1);
    const shift = 32 - bits;
    const starts = new Uint32Array(2 ** bits + 1);
    const eachPlace = (visit: (place: number, bucket: number) => void) => {
      for (let number = 0; number < this.length; number++) {
        const first = number * SKETCH_SIZE;
        const end = first + (this.sizes[number] as number);
        for (let place = first; place < end; place++)
          visit(place, bucketOf(this.hashes[place] as number, shift));
      }
    };
    eachPlace((_, bucket) => {
      starts[bucket + 1] = (starts[bucket + 1] as number) + 1;
    });
    for (let bucket = 1; bucket < starts.length; bucket++)
      starts[bucket] = (starts[bucket] as number) + (starts[bucket - 1] as number);
    const places = new Uint32Array(count);
    // From the end of each bucket to its start, which is left behind.
    const next = starts.slice(1);
    eachPlace((place, bucket) => {
      const at = (next[bucket] as number) - 1;
      next[bucket] = at;
      places[at] = place;
    });
    return { starts, places, shift };
  }
}

/** Places of hashes by buckets of them: those of bucket b are `places[starts[b]]` to before `places[starts[b + 1]]`. */
interface HashIndex {
  readonly starts: Uint32Array;
  readonly places: Uint32Array;
  readonly shift: number;
}

/** The smallest hashes of sets are small ones: they are spread over all buckets. */
function bucketOf(hash: number, shift: number): number {
  return Math.imul(hash, 0x9e3779b1) >>> shift;
}

function enlarged<Values extends Uint8Array | Uint32Array>(values: Values, larger: Values): Values {
  larger.set(values);
  return larger;
}

const NONE: readonly number[] = [];

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
