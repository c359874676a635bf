/** Fewer points for a plot that is narrower than the log is long. */

export interface Points {
  /** Ascending. */
  readonly x: readonly number[];
  /** The values, or the mean of each bucket. */
  readonly y: readonly number[];
  /** The range of each bucket; absent where every value is shown. */
  readonly low?: readonly number[];
  readonly high?: readonly number[];
}

/** Max points that can be told apart on a screen. */
const MAX_POINTS = 1000;

/**
 * At most `max` points: values as they are, or buckets of neighbours by their mean, smallest and largest value. x of a
 * bucket is that of its last value, so that the last step stays the last.
 */
export function decimate(x: readonly number[], y: readonly number[], max = MAX_POINTS): Points {
  if (y.length <= max) return { x: x.slice(), y: y.map(short) };
  const buckets = Array.from({ length: max }, (_, b) => {
    const [from, to] = [Math.floor((b * y.length) / max), Math.floor(((b + 1) * y.length) / max)];
    let [sum, low, high] = [0, Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY];
    for (let i = from; i < to; i++) {
      const value = y[i] as number;
      sum += value;
      if (value < low) low = value;
      if (value > high) high = value;
    }
    return { x: x[to - 1] as number, y: short(sum / (to - from)), low: short(low), high: short(high) };
  });
  return {
    x: buckets.map((bucket) => bucket.x),
    y: buckets.map((bucket) => bucket.y),
    low: buckets.map(({ low }) => low),
    high: buckets.map(({ high }) => high),
  };
}

/** Six digits: a plot shows no more, and the page is half as large. */
const short = (value: number) => Number(value.toPrecision(6));
