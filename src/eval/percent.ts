/** A fraction in percent, without the % sign: 0.123 gives `12.3`. */
export function percent(fraction: number, digits = 1): string {
  return (100 * fraction).toFixed(digits);
}
