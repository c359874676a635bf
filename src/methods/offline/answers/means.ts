/** An addition to a sum, or with a weight to a mean. */
export type Addition = readonly [name: string, value: number, weight?: number];

/** Sums and weighted means over the micro-batches of an optimizer step, by name. */
export class Means {
  /** Everything that was added, in order: another process adds it again. */
  readonly additions: Addition[] = [];
  private readonly sums = new Map<string, { total: number; weight: number | undefined }>();

  /** Adds to a sum. */
  add(name: string, value: number): void {
    this.additions.push([name, value]);
    const { total } = this.sums.get(name) ?? { total: 0 };
    this.sums.set(name, { total: total + value, weight: undefined });
  }

  /** Adds to a mean; a value of weight 0 does not count. */
  mean(name: string, value: number, weight: number): void {
    if (weight === 0) return;
    this.additions.push([name, value, weight]);
    const before = this.sums.get(name);
    this.sums.set(name, {
      total: (before?.total ?? 0) + value * weight,
      weight: (before?.weight ?? 0) + weight,
    });
  }

  addAll(additions: readonly Addition[]): void {
    for (const [name, value, weight] of additions) {
      if (weight === undefined) this.add(name, value);
      else this.mean(name, value, weight);
    }
  }

  value(name: string): number | undefined {
    const found = this.sums.get(name);
    return found && found.total / (found.weight ?? 1);
  }

  result(): Record<string, number> {
    const named = [...this.sums].map(([name, { total, weight = 1 }]) => [name, total / weight]);
    return Object.fromEntries(named);
  }
}
