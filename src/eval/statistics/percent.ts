/** A fraction in percent, without the % sign: 0.123 gives `12.3`. */
export function percent(fraction: number, digits = 1): string {
  return (100 * fraction).toFixed(digits);
}

/** Formats a value with its sign, which is left out where the value is shown as 0. */
export function formatSigned(value: number, format: (size: number) => string): string {
  const size = format(Math.abs(value));
  if (Number(size) === 0) return size;
  return (value < 0 ? '−' : '+') + size;
}
