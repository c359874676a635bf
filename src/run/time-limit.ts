// run.max_minutes: stops a run before a job queue kills it.

export interface TimeLimit {
  /** Aborted by the given signal, or when the time is up. */
  readonly signal: AbortSignal;
  /** The run stopped because the time was up. */
  readonly expired: boolean;
  dispose(): void;
}

/** @param minutes from now; 0 for no limit */
export function limitTime(signal: AbortSignal, minutes: number): TimeLimit {
  const timeout = new AbortController();
  // A longer timeout would fire at once.
  const milliseconds = Math.min(minutes * 60_000, 2 ** 31 - 1);
  const timer = minutes > 0 ? setTimeout(() => timeout.abort('run.max_minutes'), milliseconds) : undefined;
  timer?.unref();
  return {
    signal: AbortSignal.any([signal, timeout.signal]),
    get expired() {
      return timeout.signal.aborted && !signal.aborted;
    },
    dispose: () => clearTimeout(timer),
  };
}
