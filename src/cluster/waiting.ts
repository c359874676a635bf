/** Time that a process has waited for the others: for those that come later, and for the bytes themselves. */
export class Waiting {
  private open = 0;
  private began = 0;
  private total = 0;

  /** @param now milliseconds; for tests */
  constructor(private readonly now: () => number = () => performance.now()) {}

  /** Seconds so far. */
  get seconds(): number {
    return (this.total + (this.open > 0 ? this.now() - this.began : 0)) / 1000;
  }

  /** Waits that overlap count once. */
  async during<Result>(work: Promise<Result>): Promise<Result> {
    if (this.open++ === 0) this.began = this.now();
    try {
      return await work;
    } finally {
      if (--this.open === 0) this.total += this.now() - this.began;
    }
  }
}
