/** Reproducible numbers in [-1, 1): a 32-bit mix of seed and index, independent of the library's own generator. */
export function random(length: number, seed = 1): Float32Array {
  const values = new Float32Array(length);
  for (let i = 0; i < length; i++) {
    let h = Math.imul(i + 1, 0x9e3779b1) ^ Math.imul(seed, 0x85ebca77);
    h = Math.imul(h ^ (h >>> 16), 0x7feb352d);
    h = Math.imul(h ^ (h >>> 15), 0x846ca68b);
    h ^= h >>> 16;
    values[i] = (h >>> 0) / 2 ** 31 - 1;
  }
  return values;
}

/** Largest |a - b|; NaN anywhere gives NaN, so that comparisons with it fail. */
export function maxDifference(a: ArrayLike<number>, b: ArrayLike<number>): number {
  if (a.length !== b.length) throw new Error(`lengths differ: ${a.length} and ${b.length}`);
  let worst = 0;
  for (let i = 0; i < a.length; i++) {
    const difference = Math.abs((a[i] as number) - (b[i] as number));
    if (Number.isNaN(difference)) return difference;
    worst = Math.max(worst, difference);
  }
  return worst;
}
