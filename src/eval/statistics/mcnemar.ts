import { exp, log } from '../../native/elementary.js';
// McNemar's test: did one of two judges get more steps right that the other got wrong?

export interface McNemar {
  /** Steps that only the first, and only the second judge got right. */
  readonly only_a: number;
  readonly only_b: number;
  /** Two-sided probability of a split at least as uneven if both judges were equally good: binomial with ½. */
  readonly exact_p: number;
  /**
   * The mid-p value, with half the weight on the observed split: less conservative, and still rarely above its level
   * (Fagerland, Lydersen and Laake, BMC Medical Research Methodology 13:91, 2013).
   */
  readonly mid_p: number;
}

export function mcnemar(onlyA: number, onlyB: number): McNemar {
  for (const count of [onlyA, onlyB]) {
    if (!Number.isSafeInteger(count) || count < 0)
      throw new RangeError(`McNemar's test counts steps, found ${count}`);
  }
  const smaller = Math.min(onlyA, onlyB);
  const { at, upTo } = fairCoin(smaller, onlyA + onlyB);
  return { only_a: onlyA, only_b: onlyB, exact_p: Math.min(1, 2 * upTo), mid_p: Math.min(1, 2 * upTo - at) };
}

/** Probability of exactly k, and of at most k heads in n tosses of a fair coin, k ≤ n / 2. */
function fairCoin(k: number, n: number): { readonly at: number; readonly upTo: number } {
  let logarithm = -n * Math.LN2;
  for (let i = 1; i <= k; i++) logarithm += log((n - k + i) / i);
  const at = exp(logarithm);
  let upTo = 0;
  // P(i − 1) = P(i) · i / (n − i + 1).
  for (let i = k, chance = at; i >= 0 && chance > upTo * Number.EPSILON; i--) {
    upTo += chance;
    chance *= i / (n - i + 1);
  }
  return { at, upTo };
}
