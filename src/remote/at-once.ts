// Requests to a server, some at a time.

/**
 * Does `work` with every item, with `concurrency` of them at once. The first failure stops the others.
 *
 * @returns false if the signal stopped it
 * @throws what `work` throws
 */
export async function atOnce<Item>(
  items: readonly Item[],
  { concurrency, signal }: { readonly concurrency: number; readonly signal?: AbortSignal | undefined },
  work: (item: Item, i: number, stop: AbortSignal) => Promise<void>,
): Promise<boolean> {
  const failed = new AbortController();
  const stop = signal ? AbortSignal.any([signal, failed.signal]) : failed.signal;
  const next = items.entries();
  const worker = async () => {
    for (const [i, item] of next) await work(item, i, stop);
  };
  const workers = Array.from({ length: Math.min(concurrency, items.length) }, worker);
  try {
    await Promise.all(workers);
    return true;
  } catch (error) {
    failed.abort(error);
    await Promise.allSettled(workers);
    if (signal?.aborted) return false;
    throw error;
  }
}
