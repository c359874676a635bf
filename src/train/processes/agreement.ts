/** Agreement of a job's processes on when to stop: all after the same step, where one of them is asked to. */
import type { Cluster } from '../../cluster/cluster.js';
import type { TimeLimit } from '../../run/time-limit.js';

export interface Agreement extends Pick<TimeLimit, 'signal' | 'expired'> {
  /** Called before a step; afterwards the signal is aborted if that of any process was. */
  settle(): Promise<void>;
}

/** @param time of this process, whose signal the others do not know */
export function agreeing(cluster: Cluster | undefined, time: TimeLimit): Agreement {
  if (!cluster) {
    return {
      signal: time.signal,
      get expired() {
        return time.expired;
      },
      settle: () => Promise.resolve(),
    };
  }
  const common = new AbortController();
  let expired = false;
  return {
    signal: common.signal,
    get expired() {
      return expired;
    },
    async settle() {
      const own = Uint8Array.of(time.signal.aborted ? 1 : 0, time.expired ? 1 : 0);
      const all = await cluster.gather(own);
      if (!all.some(([aborted]) => aborted === 1)) return;
      // A person's stop goes before the clock's.
      expired = all.every(([aborted, late]) => aborted === 0 || late === 1);
      common.abort();
    },
  };
}
