// Work spread over servers.
import { RemoteError } from './errors.js';

export interface SpreadOptions<Server> {
  readonly signal?: AbortSignal | undefined;
  /** Items that it works on at a time. */
  readonly atOnce: (server: Server) => number;
  /** A server has failed by a RemoteError: throws where the rest cannot go on. Its items go to the others. */
  readonly leave: (server: Server, error: RemoteError) => void;
}

/**
 * Spreads items over servers. Each server takes the next item as it has room, so that a faster one does more. Servers
 * that are left out get nothing more.
 *
 * @param work ends with an error where `stop` is aborted
 * @returns false if the signal stopped it
 * @throws what `leave` throws, and errors of `work` other than RemoteErrors
 */
export async function spread<Server, Item>(
  servers: readonly Server[],
  items: readonly Item[],
  { signal, atOnce, leave }: SpreadOptions<Server>,
  work: (server: Server, item: Item, stop: AbortSignal) => Promise<void>,
): Promise<boolean> {
  const failed = new AbortController();
  let live = servers;
  // Items of a lost server are left for another pass.
  for (let left = [...items]; left.length > 0 && !signal?.aborted; ) {
    const queue = left;
    left = [];
    const lanes = live.map((server) => {
      const lost = new AbortController();
      const stop = AbortSignal.any([failed.signal, lost.signal, ...(signal ? [signal] : [])]);
      const lane = async () => {
        while (queue.length > 0 && !stop.aborted) {
          const item = queue.shift() as Item;
          try {
            await work(server, item, stop);
          } catch (error) {
            if (signal?.aborted || failed.signal.aborted) return;
            left.push(item);
            if (lost.signal.aborted) return;
            if (!(error instanceof RemoteError)) throw error;
            leave(server, error);
            lost.abort(error);
          }
        }
      };
      return { server, lane, lost };
    });
    const most = Math.max(...lanes.map(({ server }) => atOnce(server)));
    const running: Promise<void>[] = [];
    // Servers take turns, so that few items are spread too.
    for (let i = 0; i < most; i++)
      for (const { server, lane } of lanes) if (i < atOnce(server)) running.push(lane());
    try {
      await Promise.all(running);
    } catch (error) {
      failed.abort(error);
      await Promise.allSettled(running);
      throw error;
    }
    left.push(...queue);
    live = lanes.filter(({ lost }) => !lost.signal.aborted).map(({ server }) => server);
  }
  return signal?.aborted !== true;
}
