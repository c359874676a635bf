import { DataError } from '../files/data-error.js';
import { isNotFinite, type Scorer, type Solution, type SolutionScores } from '../scoring/scorer.js';
import { RequestError } from './errors.js';

/** Scoring requests that may wait or run. */
const MAX_WAITING = 64;

/** Solutions of several requests that are scored in one call. */
const MAX_TOGETHER = 256;

interface Asked {
  readonly scorer: Scorer;
  readonly solutions: readonly Solution[];
  readonly signal: AbortSignal;
  resolve(scores: readonly SolutionScores[] | undefined): void;
  reject(error: unknown): void;
}

/**
 * Runs the calls of scorers one after another, so that scoring and generation take turns on the device. Requests that
 * come meanwhile for the same scorer are scored in one call: a score depends on its own solution alone.
 */
export class ScoreQueue {
  private readonly waiting: Asked[] = [];
  private unsettled = 0;
  private isRunning = false;

  /** Undefined where the signal stopped it. */
  async score(
    scorer: Scorer,
    solutions: readonly Solution[],
    signal: AbortSignal,
  ): Promise<readonly SolutionScores[] | undefined> {
    if (this.unsettled >= MAX_WAITING)
      throw new RequestError(429, `${this.unsettled} scoring requests wait already; try again later`, {
        code: 'queue_full',
        retryAfter: 1,
      });
    this.unsettled++;
    const answer = new Promise<readonly SolutionScores[] | undefined>((resolve, reject) => {
      this.waiting.push({ scorer, solutions, signal, resolve, reject });
    });
    if (!this.isRunning) void this.run();
    return answer.finally(() => this.unsettled--);
  }

  private async run(): Promise<void> {
    this.isRunning = true;
    for (let first = this.waiting.shift(); first; first = this.waiting.shift())
      await answerAll(this.together(first));
    this.isRunning = false;
  }

  /** The first, and those that wait for the same scorer, as far as they fit. */
  private together(first: Asked): Asked[] {
    const taken = [first];
    let total = first.solutions.length;
    for (let i = 0; i < this.waiting.length; ) {
      const next = this.waiting[i] as Asked;
      if (next.scorer !== first.scorer || total + next.solutions.length > MAX_TOGETHER) i++;
      else {
        total += next.solutions.length;
        taken.push(...this.waiting.splice(i, 1));
      }
    }
    return taken;
  }
}

async function answerAll(all: readonly Asked[]): Promise<void> {
  for (const one of all) if (one.signal.aborted) one.resolve(undefined);
  const asked = all.filter(({ signal }) => !signal.aborted);
  const [first] = asked;
  if (!first) return;
  const stop = new AbortController();
  // Nobody waits any longer.
  const left = () => {
    if (asked.every(({ signal }) => signal.aborted)) stop.abort();
  };
  for (const { signal } of asked) signal.addEventListener('abort', left);
  try {
    const scored = await first.scorer.score(
      asked.flatMap(({ solutions }) => solutions),
      { signal: stop.signal },
    );
    let at = 0;
    for (const { solutions, resolve } of asked) {
      resolve(scored?.slice(at, at + solutions.length));
      at += solutions.length;
    }
  } catch (error) {
    const isOfOne = error instanceof DataError || error instanceof RequestError || isNotFinite(error);
    // The fault is in one of the requests: the others are answered.
    if (isOfOne && asked.length > 1) for (const one of asked) await answerAll([one]);
    else for (const { reject } of asked) reject(error);
  } finally {
    for (const { signal } of asked) signal.removeEventListener('abort', left);
  }
}
