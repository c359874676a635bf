/** The pages of a KV cache: the free ones, and the number of owners of each other one. */
import { StepTrainError } from '../../native/errors.js';
import { PAGE_TOKENS } from '../../ops/cache.js';

/** Numbers of two pages, or of two places of states: what the first one holds is copied to the second. */
export type Copy = readonly [from: number, to: number];

/**
 * Page numbers 0 … size − 1 and their owners. The caller decides what a page holds; every layer's cache uses the same
 * numbers.
 */
export class PagePool {
  private readonly owners: Int32Array;
  private readonly unused: number[];

  constructor(readonly size: number) {
    this.owners = new Int32Array(size);
    // Low numbers are taken first, so that a small load touches little memory.
    this.unused = Array.from({ length: size }, (_, i) => size - 1 - i);
  }

  get free(): number {
    return this.unused.length;
  }

  /** A free page, which then has one owner; undefined where none is free. */
  take(): number | undefined {
    const page = this.unused.pop();
    if (page !== undefined) this.owners[page] = 1;
    return page;
  }

  /** Adds an owner. */
  retain(page: number): void {
    this.owners[page] = this.ownersOf(page, 'retained') + 1;
  }

  /** Removes an owner; a page without owners is free. */
  release(page: number): void {
    const left = this.ownersOf(page, 'released') - 1;
    this.owners[page] = left;
    if (left === 0) this.unused.push(page);
  }

  references(page: number): number {
    return this.owners[page] ?? 0;
  }

  private ownersOf(page: number, what: string): number {
    const owners = this.references(page);
    if (owners > 0) return owners;
    throw new StepTrainError('E_STATE', `page ${page} of the cache was ${what}, and nobody owns it`);
  }
}

/** Pages that hold `tokens` tokens. */
export function pagesFor(tokens: number): number {
  return Math.ceil(tokens / PAGE_TOKENS);
}
