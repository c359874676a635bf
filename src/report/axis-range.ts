// Ranges of axes of curves: what the values leave open, as one value does, comes from what they can be.

/** Share of the range of values that is left free above and below them. */
const MARGIN = 0.08;

export type Range = [low: number, high: number];

/**
 * The range of an axis of values from `min` to `max`. Shares stay within 0 and 1, and values that are not negative
 * above 0; equal values take all from 0 to 1 of shares, and of others from 0 to twice the value.
 */
export function valueRange(min: number, max: number, { isShare }: { readonly isShare: boolean }): Range {
  // Values that differ by rounding alone are equal.
  if (max - min <= 1e-10 * Math.max(Math.abs(min), Math.abs(max)))
    return isShare || max === 0
      ? [Math.min(0, min), Math.max(1, max)]
      : [Math.min(0, 2 * min), Math.max(0, 2 * max)];
  const free = MARGIN * (max - min);
  const [low, high] = [min - free, max + free];
  return [min >= 0 ? Math.max(0, low) : low, isShare && max <= 1 ? Math.min(1, high) : high];
}

/**
 * The range of an axis of steps: `shown`, to which the reader may have zoomed; of a single step from 0 to `last`.
 *
 * @param steps distinct, ascending
 * @param last the last step of the run
 */
export function stepRange(steps: readonly number[], last: number, shown: Range): Range {
  const [step = 0] = steps;
  return steps.length > 1 ? shown : [Math.min(0, step), Math.max(last, step) || 1];
}
