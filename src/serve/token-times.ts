/** When the tokens of the samples of one request came, for the metrics. */
import type { ServerMetrics } from './metrics.js';

export class TokenTimes {
  private readonly samples = new Map<number, { readonly first: number; tokens: number }>();

  /** @param arrived milliseconds of `performance.now()` at which the request came */
  constructor(
    private readonly metrics: ServerMetrics,
    private readonly arrived: number,
  ) {}

  /** Takes an event of a sample. */
  note(sample: number, { isToken, isLast }: { readonly isToken: boolean; readonly isLast: boolean }): void {
    const now = performance.now();
    let times = this.samples.get(sample);
    if (times === undefined) {
      times = { first: now, tokens: 0 };
      this.samples.set(sample, times);
      this.metrics.firstTokenSeconds.observe((now - this.arrived) / 1000);
    }
    if (isToken) times.tokens++;
    if (isLast && times.tokens > 1)
      this.metrics.tokenSeconds.observe((now - times.first) / 1000 / (times.tokens - 1));
  }
}
