import { RequestError } from './errors.js';

/** Scoring requests that may wait for the one before. */
const MAX_WAITING = 64;

/** One after another, so that scoring and generation take turns on the device. */
export class ScoreQueue {
  private last: Promise<unknown> = Promise.resolve();
  private waiting = 0;

  async run<T>(work: () => Promise<T>): Promise<T> {
    if (this.waiting >= MAX_WAITING)
      throw new RequestError(429, `${this.waiting} scoring requests wait already; try again later`, {
        code: 'queue_full',
        retryAfter: 1,
      });
    this.waiting++;
    const turn = this.last.then(work, work);
    this.last = turn.catch(() => {});
    return turn.finally(() => this.waiting--);
  }
}
