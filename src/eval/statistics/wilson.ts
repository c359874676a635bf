/** The normal quantile of a central 95 %. */
const Z = 1.959963984540054;

/**
 * The upper end of Wilson's score interval (1927), central 95 %, for a share that none of `n` problems showed: z² / (n
 * + z²).
 *
 * @param n at least 0; without a problem the share may be 1
 */
export function unseenShare(n: number): number {
  return (Z * Z) / (n + Z * Z);
}
