// The worker thread of `tokenizeInWorker`.
import { parentPort, workerData } from 'node:worker_threads';
import { sentError } from './sent-error.js';
import { type TokenizeJob, type TokenizeMessage, tokenizeData } from './tokenize.js';

const tell = (message: TokenizeMessage) => parentPort?.postMessage(message);

try {
  await tokenizeData(workerData as TokenizeJob, (solutions) => tell({ solutions }));
  tell({ done: true });
} catch (error) {
  tell({ failure: sentError(error) });
}
