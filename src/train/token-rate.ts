/** Tokens per second over the last steps: some of them may also roll out, so a single step is no measure. */

/** The window has at least this many steps and this many seconds, where there are so many. */
const STEPS = 32;
const SECONDS = 30;

export class TokenRate {
  private readonly steps: { readonly tokens: number; readonly seconds: number }[] = [];
  private tokens = 0;
  private seconds = 0;

  add(tokens: number, seconds: number): void {
    this.steps.push({ tokens, seconds });
    this.tokens += tokens;
    this.seconds += seconds;
    for (let [oldest] = this.steps; oldest; [oldest] = this.steps) {
      if (this.steps.length <= STEPS || this.seconds - oldest.seconds < SECONDS) return;
      this.steps.shift();
      this.tokens -= oldest.tokens;
      this.seconds -= oldest.seconds;
    }
  }

  get perSecond(): number {
    return this.seconds > 0 ? this.tokens / this.seconds : 0;
  }
}
