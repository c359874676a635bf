// run.max_minutes: a run that ends by itself, as a person would end it, before a queue kills it.

export interface TimeLimit {
  /** Aborted by the given signal, or when the time is up. */
  readonly signal: AbortSignal;
  /** The time was up before anybody else stopped the run. */
  readonly expired: boolean;
  dispose(): void;
}

/** @param minutes from now; 0 for no limit */
export function limitTime(signal: AbortSignal, minutes: number): TimeLimit {
  const own = new AbortController();
  // Longer timers fire at once.
  const milliseconds = Math.min(minutes * 60_000, 2 ** 31 - 1);
  const timer = minutes > 0 ? setTimeout(() => own.abort('run.max_minutes'), milliseconds) : undefined;
  timer?.unref();
  return {
    signal: AbortSignal.any([signal, own.signal]),
    get expired() {
      return own.signal.aborted && !signal.aborted;
    },
    dispose: () => clearTimeout(timer),
  };
}
