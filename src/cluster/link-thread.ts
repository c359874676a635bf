/** The thread of a link. It ends the process where the main thread does not do so itself after a loss. */
import { parentPort, workerData } from 'node:worker_threads';
import { type LinkOptions, openLink } from './link.js';

export type LinkOrder =
  | { readonly order: 'send'; readonly to: number; readonly number: number; readonly bytes: Uint8Array }
  | { readonly order: 'fail'; readonly reason: string }
  | { readonly order: 'close' };

/** Time for the main thread to end: it may be writing files of the user. */
const GRACE_MS = 10_000;

const port = parentPort as NonNullable<typeof parentPort>;
const { place } = workerData as LinkOptions;
const link = openLink(workerData as LinkOptions, (event) => {
  if (event.kind === 'data') port.postMessage(event, [event.bytes.buffer as ArrayBuffer]);
  else port.postMessage(event);
  if (event.kind !== 'lost') return;
  setTimeout(() => {
    process.stderr.write(`rank ${place.rank} is ended: ${event.reason}\n`);
    process.kill(process.pid, 'SIGKILL');
  }, GRACE_MS).unref();
});

port.on('message', async (order: LinkOrder) => {
  if (order.order === 'send') link.send(order.to, order.number, order.bytes);
  else {
    await (order.order === 'fail' ? link.fail(order.reason) : link.close());
    port.close();
  }
});
