/** Formats a number of parameters: "7.62B", "115.0M"; below 100,000 all digits, since fewer would say little. */
export function parameterCount(count: number): string {
  if (count < 1e5) return count.toLocaleString('en');
  return count < 1e9 ? `${(count / 1e6).toFixed(1)}M` : `${(count / 1e9).toFixed(2)}B`;
}
