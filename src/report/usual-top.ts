/** Share of the values, in order, that belongs to the beginning. */
const BEGINNING = 0.1;

/**
 * The top of a scale that leaves out a beginning which is far above all that follows; undefined where there is none.
 *
 * @param values as logged, the first one first
 */
export function usualTop(values: readonly number[]): number | undefined {
  if (values.length < 20) return undefined;
  const later = values.slice(Math.ceil(BEGINNING * values.length));
  const [low, high] = [Math.min(...later), Math.max(...later)];
  const first = Math.max(...values.slice(0, values.length - later.length));
  return first - low > 3 * (high - low) && high > low ? high + 0.25 * (high - low) : undefined;
}
