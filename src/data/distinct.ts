/** Counts distinct numbers in 8 to 24 bytes each. A Set takes more, and holds at most 2^24. */
export class DistinctNumbers {
  private values = new Float64Array(1024);
  private size = 0;

  add(value: number): void {
    if (this.size === this.values.length) this.makeRoom();
    this.values[this.size++] = value;
  }

  count(): number {
    const sorted = this.values.subarray(0, this.size).sort();
    let kept = 0;
    for (const value of sorted) {
      if (kept === 0 || value !== sorted[kept - 1]) sorted[kept++] = value;
    }
    this.size = kept;
    return kept;
  }

  /** Repeated numbers go first; only where most of them are distinct is more memory taken. */
  private makeRoom(): void {
    if (this.count() <= this.values.length / 2) return;
    const larger = new Float64Array(2 * this.values.length);
    larger.set(this.values);
    this.values = larger;
  }
}
