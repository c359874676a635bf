/** Timing of one trial. The rival's twin is peers/stopwatch.py: same rule, so that both do the same work. */
import type { Device } from '#src/runtime/device.js';

/** Runs are timed in batches at least this long, so that one wait for the device does not show. */
const BATCH_SECONDS = 0.02;
const MAX_PER_BATCH = 256;
const MIN_SAMPLES = 3;

let last: Promise<unknown> = Promise.resolve();

/** Runs `work` when what asked before is done: two measurements that run together take turns, batch by batch. */
export function inTurn<T>(work: () => Promise<T>): Promise<T> {
  const turn = last.then(work);
  last = turn.catch(() => undefined);
  return turn;
}

/** Seconds per run, one sample for each batch of runs. `enqueue` may return before its work is done. */
export async function stopwatch(
  device: Device,
  seconds: number,
  enqueue: (run: number) => void | Promise<void>,
): Promise<number[]> {
  let run = 0;
  const batch = (count: number) =>
    inTurn(async () => {
      const began = performance.now();
      for (let i = 0; i < count; i++) {
        const pending = enqueue(run++);
        if (pending) await pending;
      }
      await device.synchronize();
      return (performance.now() - began) / 1000;
    });
  // Warm-up: first use of memory and code, and how many runs make a batch.
  await batch(1);
  let count = 1;
  while ((await batch(count)) < BATCH_SECONDS && count < MAX_PER_BATCH) count *= 2;
  const samples: number[] = [];
  let spent = 0;
  while (spent < seconds || samples.length < MIN_SAMPLES) {
    const taken = await batch(count);
    spent += taken;
    samples.push(taken / count);
  }
  return samples;
}

/** Operands are rotated over this many bytes, more than the caches hold, as the layers of a model are. */
export const ROTATED_BYTES = 96 << 20;
const MAX_COPIES = 64;

/** Copies of operands of `bytes` bytes to rotate over. */
export function copiesFor(bytes: number): number {
  return Math.min(MAX_COPIES, Math.max(1, Math.ceil(ROTATED_BYTES / bytes)));
}
