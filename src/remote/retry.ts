/** Trying again: later and later, and not all at the same moment. */
import { setTimeout as pause } from 'node:timers/promises';
import { PassingFailure, RemoteError } from './errors.js';

export interface RetryOptions {
  /** Tries in all. */
  readonly attempts: number;
  /** Milliseconds before the second try; twice as long before each further one. */
  readonly backoffMs: number;
  readonly maxBackoffMs: number;
  /** Milliseconds in which tries do not count that a busy server answered with the time to come back. Default 0. */
  readonly patienceMs?: number;
}

/**
 * @param what the attempted action, for the sentence
 * @throws RemoteError after the last try, or at once where no try can help; the reason of an aborted `signal`
 */
export async function retrying<T>(
  what: string,
  { attempts, backoffMs, maxBackoffMs, patienceMs = 0 }: RetryOptions,
  signal: AbortSignal,
  run: (attempt: number) => Promise<T>,
): Promise<T> {
  const began = performance.now();
  let failed = 0;
  for (let attempt = 1; ; attempt++) {
    try {
      return await run(attempt);
    } catch (error) {
      signal.throwIfAborted();
      if (!(error instanceof PassingFailure)) throw error;
      const isBusy = error.retryAfter > 0 && performance.now() - began < patienceMs;
      if (!isBusy && ++failed >= attempts)
        throw new RemoteError(`${what} failed ${failed} times; the last time: ${error.message}`, {
          cause: error,
        });
      const backoff =
        Math.min(maxBackoffMs, backoffMs * 2 ** Math.max(0, failed - 1)) * (0.5 + Math.random() / 2);
      await pause(Math.max(backoff, Math.min(error.retryAfter, maxBackoffMs)), undefined, { signal });
    }
  }
}
