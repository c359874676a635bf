/** The normal quantile of a central 95 %. */
const Z = 1.959963984540054;

/**
 * Wilson's score interval (1927) of a share that `n` problems gave, central 95 %. The bootstrap says nothing where every problem
 * gives the same: its resamples are all alike, and 8 right of 8 would be 100 % for certain.
 *
 * @param n at least 1
 */
export function wilsonInterval(share: number, n: number): [number, number] {
  const z2 = Z * Z;
  const centre = (share + z2 / (2 * n)) / (1 + z2 / n);
  const half = (Z / (1 + z2 / n)) * Math.sqrt((share * (1 - share)) / n + z2 / (4 * n * n));
  return [share === 0 ? 0 : centre - half, share === 1 ? 1 : centre + half];
}
