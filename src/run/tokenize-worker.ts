// The thread of `tokenizeInWorker`.
import { parentPort, workerData } from 'node:worker_threads';
import { DataError } from '../files/data-error.js';
import { type TokenizeJob, type TokenizeMessage, tokenizeData } from './tokenize.js';

const tell = (message: TokenizeMessage) => parentPort?.postMessage(message);

try {
  await tokenizeData(workerData as TokenizeJob, (solutions) => tell({ solutions }));
  tell({ done: true });
} catch (error) {
  // Classes do not survive the way between threads; anything unforeseen ends this one with its own error.
  if (!(error instanceof DataError)) throw error;
  tell({ failure: { kind: error.kind, message: error.message } });
}
