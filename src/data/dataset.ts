/**
 * Items by index. `get` may read the item from disk each time,
 * so keep indices rather than many items. Iteration is in order.
 */
export interface Dataset<T> extends Iterable<T> {
  readonly length: number;
  /** @throws RangeError outside 0 … length − 1 */
  get(index: number): T;
}

/** A dataset whose items come from `read`. */
export function dataset<T>(length: number, read: (index: number) => T): Dataset<T> {
  return {
    length,
    get(index) {
      if (!Number.isInteger(index) || index < 0 || index >= length)
        throw new RangeError(`there is no item ${index} in a dataset of ${length}`);
      return read(index);
    },
    *[Symbol.iterator]() {
      for (let index = 0; index < length; index++) yield read(index);
    },
  };
}

/** Items that are in memory already. */
export function inMemory<T>(items: readonly T[]): Dataset<T> {
  return dataset(items.length, (index) => items[index] as T);
}

/** The items at `chosen` indices, in that order. */
export function subset<T>(whole: Dataset<T>, chosen: readonly number[]): Dataset<T> {
  return dataset(chosen.length, (index) => whole.get(chosen[index] as number));
}

/** 0 … length − 1. */
export function indices({ length }: { readonly length: number }): number[] {
  return Array.from({ length }, (_, index) => index);
}
