/** Counts of solutions, steps and samples at each stage, and of different wrong steps. All of it is JSON. */

import { hash48 } from '../random/text-hash.js';

/** Named counts, in the order in which the names came. */
export type Counts = Readonly<Record<string, number>>;

export interface TallyState {
  readonly counts: Counts;
  readonly wrong_steps: SketchState;
  /** Wrong steps by the oracle's names of their errors; empty for problems that it does not know. */
  readonly errors: Counts;
}

export class Tally {
  private readonly counts = new Map<string, number>();
  private readonly errors = new Map<string, number>();
  private readonly distinct: DistinctSketch;

  constructor(state?: TallyState) {
    for (const [name, count] of Object.entries(state?.counts ?? {})) this.counts.set(name, count);
    for (const [name, count] of Object.entries(state?.errors ?? {})) this.errors.set(name, count);
    this.distinct = new DistinctSketch(state?.wrong_steps);
  }

  add(name: string, by = 1): void {
    this.counts.set(name, (this.counts.get(name) ?? 0) + by);
  }

  /** @param text the step with its problem: the same step of another problem is another */
  wrongStep(text: string, error?: string): void {
    this.distinct.add(text);
    if (error !== undefined) this.errors.set(error, (this.errors.get(error) ?? 0) + 1);
  }

  get(name: string): number {
    return this.counts.get(name) ?? 0;
  }

  /** Distinct wrong steps: exact up to 1,024, an estimate within about 3 % above. */
  get distinctWrongSteps(): number {
    return this.distinct.estimate();
  }

  /** Entropy of the kinds of errors in bits; 0 where all are of one kind or none is known. */
  get errorEntropy(): number {
    const total = [...this.errors.values()].reduce((sum, count) => sum + count, 0);
    return [...this.errors.values()].reduce(
      (sum, count) => sum - (count / total) * Math.log2(count / total),
      0,
    );
  }

  get state(): TallyState {
    return {
      counts: Object.fromEntries(this.counts),
      wrong_steps: this.distinct.state,
      errors: Object.fromEntries(this.errors),
    };
  }
}

/** The smallest hashes, and how many texts came in all. */
interface SketchState {
  readonly seen: number;
  readonly smallest: readonly number[];
}

const SKETCH = 1024;

/** Counts distinct texts in bounded memory: the k-th smallest of their hashes tells how dense they lie (Bar-Yossef et al., 2002). */
class DistinctSketch {
  private seen: number;
  private smallest: number[];
  private readonly known: Set<number>;

  constructor({ seen, smallest }: SketchState = { seen: 0, smallest: [] }) {
    this.seen = seen;
    this.smallest = [...smallest];
    this.known = new Set(smallest);
  }

  add(text: string): void {
    this.seen++;
    const hash = hash48(text) / 2 ** 48;
    if (this.known.has(hash)) return;
    const largest = this.smallest.at(-1);
    if (this.smallest.length === SKETCH && hash > (largest as number)) return;
    let at = this.smallest.length;
    while (at > 0 && (this.smallest[at - 1] as number) > hash) at--;
    this.smallest.splice(at, 0, hash);
    this.known.add(hash);
    if (this.smallest.length > SKETCH) this.known.delete(this.smallest.pop() as number);
  }

  estimate(): number {
    if (this.smallest.length < SKETCH) return this.smallest.length;
    return Math.min(this.seen, Math.round((SKETCH - 1) / (this.smallest.at(-1) as number)));
  }

  get state(): SketchState {
    return { seen: this.seen, smallest: this.smallest };
  }
}
