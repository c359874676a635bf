import { hashOf, NumberIndex } from '../native/number-index.js';

/** Up to as many numbers repeated ones are not looked for before the end. */
const FEW = 2 ** 20;

/** Numbers of a part that is looked at at once, so that its table stays in the processor's cache. */
const PART = 2 ** 18;

/** Counts distinct numbers in 8 to 24 bytes each. A Set takes more, and holds at most 2^24. */
export class DistinctNumbers {
  private values = new Float64Array(1024);
  private size = 0;

  add(value: number): void {
    if (this.size === this.values.length) this.makeRoom();
    this.values[this.size++] = value;
  }

  /** Keeps one of each. */
  count(): number {
    const { values, size } = this;
    const bits = Math.max(0, Math.ceil(Math.log2(size / PART)));
    const parts = 2 ** bits;
    const room = 2 ** Math.ceil(Math.log2(1 + size / parts));
    for (let part = 0; part < parts; part++) {
      const known = new NumberIndex(room);
      for (let i = 0; i < size; i++) {
        const value = values[i] as number;
        // The upper bits: the table of a part looks at the lower ones.
        if (bits > 0 && hashOf(value) >>> (32 - bits) !== part) continue;
        const before = known.size;
        if (known.add(value) < before) values[i] = Number.NaN;
      }
    }
    let kept = 0;
    for (let i = 0; i < size; i++) {
      const value = values[i] as number;
      if (!Number.isNaN(value)) values[kept++] = value;
    }
    this.size = kept;
    return kept;
  }

  /** Repeated numbers go first; only where most of them are distinct is more memory taken. */
  private makeRoom(): void {
    if (this.size >= FEW && this.count() <= this.values.length / 2) return;
    const larger = new Float64Array(2 * this.values.length);
    larger.set(this.values);
    this.values = larger;
  }
}
