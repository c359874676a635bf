/**
 * Philox 4x32-10, the counter-based generator of Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as
 * 1, 2, 3" (SC 2011): a block of four 32-bit words is a pure function of a 128-bit counter and a 64-bit key, so any
 * part of a sequence can be made alone and in any order.
 */

const MULTIPLIER_0 = 0xd2511f53;
const MULTIPLIER_1 = 0xcd9e8d57;
const WEYL_0 = 0x9e3779b9;
const WEYL_1 = 0xbb67ae85;
const ROUNDS = 10;

export type Counter = readonly [number, number, number, number];
export type Key = readonly [number, number];

/** One block of four unsigned 32-bit words. */
export function philox4x32(counter: Counter, key: Key): [number, number, number, number] {
  let [c0, c1, c2, c3] = counter;
  let [k0, k1] = key;
  for (let round = 0; round < ROUNDS; round++) {
    const high0 = multiplyHigh(MULTIPLIER_0, c0);
    const low0 = Math.imul(MULTIPLIER_0, c0);
    const high1 = multiplyHigh(MULTIPLIER_1, c2);
    const low1 = Math.imul(MULTIPLIER_1, c2);
    [c0, c1, c2, c3] = [high1 ^ c1 ^ k0, low1, high0 ^ c3 ^ k1, low0];
    k0 = (k0 + WEYL_0) | 0;
    k1 = (k1 + WEYL_1) | 0;
  }
  return [c0 >>> 0, c1 >>> 0, c2 >>> 0, c3 >>> 0];
}

/** The key of a seed, a non-negative safe integer: its low and high 32 bits. */
export function keyOfSeed(seed: number): Key {
  if (!Number.isSafeInteger(seed) || seed < 0) {
    throw new RangeError(`the seed is ${seed}; expected an integer from 0 to ${Number.MAX_SAFE_INTEGER}`);
  }
  return [seed >>> 0, Math.floor(seed / 2 ** 32)];
}

/**
 * The random stream of one item: it depends on the seed, the domain (its use) and the item's index,
 * never on draws for other items.
 */
export class PhiloxStream {
  private readonly key: Key;
  private block = 0;
  private words: readonly number[] = [];
  private at = 4;

  /** @param domain an unsigned 32-bit number that keeps different uses of one seed apart */
  constructor(
    seed: number,
    private readonly domain: number,
    private readonly index: number,
  ) {
    this.key = keyOfSeed(seed);
  }

  /** An unsigned 32-bit word. */
  word(): number {
    if (this.at === 4) {
      const high = Math.floor(this.index / 2 ** 32);
      this.words = philox4x32([this.block++, this.domain, this.index >>> 0, high], this.key);
      this.at = 0;
    }
    return this.words[this.at++] as number;
  }

  /** A number in [0, 1) with 32 random bits. */
  uniform(): number {
    return this.word() / 2 ** 32;
  }

  /** An integer from 0 to n − 1, every value equally likely. */
  below(n: number): number {
    let word = this.word();
    // Words at or above the largest multiple of n would bias towards small values. The remainder of doubles is slow,
    // and only a word among the last n can be that large.
    while (word >= 2 ** 32 - n && word >= 2 ** 32 - (2 ** 32 % n)) word = this.word();
    return word % n;
  }

  /** One element of a list that is not empty. */
  pick<T>(items: readonly T[]): T {
    return items[this.below(items.length)] as T;
  }
}

/** The items in another order, every order equally likely. */
export function shuffled<T>(draw: PhiloxStream, items: readonly T[]): T[] {
  const list = [...items];
  for (let i = list.length - 1; i > 0; i--) {
    const j = draw.below(i + 1);
    const item = list[i] as T;
    list[i] = list[j] as T;
    list[j] = item;
  }
  return list;
}

/** The upper 32 bits of the 64-bit product, from 16-bit halves: doubles hold only 53 bits. */
function multiplyHigh(a: number, b: number): number {
  const aLow = a & 0xffff;
  const aHigh = a >>> 16;
  const bLow = b & 0xffff;
  const bHigh = b >>> 16;
  const low = Math.imul(aLow, bLow);
  const middle = (Math.imul(aHigh, bLow) >>> 0) + (low >>> 16);
  const cross = (Math.imul(aLow, bHigh) >>> 0) + (middle & 0xffff);
  return (Math.imul(aHigh, bHigh) + (middle >>> 16) + (cross >>> 16)) | 0;
}
