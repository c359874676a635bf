// A worker thread of `encoderThreads`: encodes batches of records until its parent ends it.
import { parentPort, workerData } from 'node:worker_threads';
import { verdictTokenizer } from '../data/verdict.js';
import { parseExact } from '../files/exact-json.js';
import type { StepRecord } from '../records/record.js';
import { encodeRecord } from './encode.js';
import type { EncoderJob, EncoderMessage } from './encoders.js';
import { sentError } from './sent-error.js';
import { configuredTokenizer } from './tokenizer.js';

const { model, prompt, whole, seed } = workerData as EncoderJob;
const verdicts = verdictTokenizer(prompt, await configuredTokenizer(model));

parentPort?.on('message', (texts: readonly string[]) => {
  parentPort?.postMessage(encoded(texts));
});

function encoded(texts: readonly string[]): EncoderMessage {
  try {
    return {
      records: texts.map((text) => encodeRecord(verdicts, parseExact(text) as StepRecord, { whole, seed })),
    };
  } catch (error) {
    return { failure: sentError(error) };
  }
}
