// The worker thread of `tokenizeInWorker`.
import { parentPort, workerData } from 'node:worker_threads';
import { DataError } from '../files/data-error.js';
import { type TokenizeJob, type TokenizeMessage, tokenizeData } from './tokenize.js';

const tell = (message: TokenizeMessage) => parentPort?.postMessage(message);

try {
  await tokenizeData(workerData as TokenizeJob, (solutions) => tell({ solutions }));
  tell({ done: true });
} catch (error) {
  // Error classes do not survive the message to the main thread; an unexpected error ends this thread.
  if (!(error instanceof DataError)) throw error;
  const { kind, what, position, hint } = error;
  tell({ failure: { kind, what, position, hint } });
}
