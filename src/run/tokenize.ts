// Tokenises the data of a run into a store, in a worker thread so that the program stays responsive.
import { existsSync, statSync } from 'node:fs';
import { Worker } from 'node:worker_threads';
import type { DataConfig, ModelConfig, PromptConfig } from '../config/schema.js';
import { type LabelRules, type LeftOut, relabelled } from '../data/label-rules.js';
import type { LoadReport } from '../data/load.js';
import { TokenStoreWriter } from '../data/token-store.js';
import { trainingFiles } from '../data/training-files.js';
import { verdictTokenizer } from '../data/verdict.js';
import { exactText } from '../files/exact-json.js';
import type { StepRecord } from '../records/record.js';
import { toLog } from '../terminal/log.js';
import { encodeRecord } from './encode.js';
import { type EncoderJob, type EncoderThread, encodedInOrder, encoderThreads } from './encoders.js';
import { dividedRecords } from './parts.js';
import { receivedError, type SentDataError } from './sent-error.js';
import { configuredTokenizer } from './tokenizer.js';

export interface TokenizeJob {
  readonly data: DataConfig;
  readonly model: ModelConfig;
  readonly prompt: PromptConfig;
  /** Labels as reward models learn them, of solutions tokenised whole; absent: as they are, up to the last labelled step. */
  readonly labels?: LabelRules | undefined;
  /** Empty; the store is written into it. */
  readonly directory: string;
}

/** Messages of the worker thread. */
export type TokenizeMessage =
  | { readonly solutions: number }
  | { readonly done: true }
  | { readonly failure: SentDataError };

const TELL_EVERY = 1000;

/** Files from which on other threads help from the beginning: some 5,000 solutions. */
const LARGE_BYTES = 4 << 20;

/** Print a line if it takes longer than this. */
const NOTE_MS = 5000;

/**
 * Tokenises in a worker. Gives false if the signal stopped it.
 *
 * @throws DataError as `dividedRecords` does
 */
export async function tokenizeInWorker(job: TokenizeJob, signal: AbortSignal): Promise<boolean> {
  // The signal may have come while the data was hashed; a listener would miss it.
  if (signal.aborted) return false;
  const entry = new URL('./tokenize-worker.js', import.meta.url);
  if (!existsSync(entry)) {
    // Uncompiled sources, as in the tests, have no file that a worker could load.
    await tokenizeData(job, () => {});
    return true;
  }
  // Node's own arguments, such as code to evaluate, must not reach the worker.
  const worker = new Worker(entry, { workerData: job, execArgv: [] });
  const stop = () => void worker.terminate();
  signal.addEventListener('abort', stop);
  let notedAt = performance.now();
  try {
    return await new Promise<boolean>((resolve, reject) => {
      worker.on('message', (message: TokenizeMessage) => {
        if ('done' in message) resolve(true);
        else if ('failure' in message) reject(receivedError(message.failure));
        else if (performance.now() - notedAt > NOTE_MS) {
          notedAt = performance.now();
          toLog(`tokenised ${message.solutions} solutions`);
        }
      });
      worker.on('error', reject);
      worker.on('exit', () => resolve(false));
    });
  } finally {
    signal.removeEventListener('abort', stop);
    await worker.terminate();
  }
}

/** Tokenises in the calling thread, and large data on other cores too. */
export async function tokenizeData(
  { data, model, prompt, labels, directory }: TokenizeJob,
  onProgress: (solutions: number) => void,
  threads: (job: EncoderJob) => readonly EncoderThread[] = encoderThreads,
): Promise<void> {
  const encoding = { whole: labels !== undefined, seed: data.seed };
  const openThreads = () => threads({ model, prompt, ...encoding });
  // Other threads load their tokenizer while this one does, where the files are large.
  const helpers = bytesToRead(data) < LARGE_BYTES ? [] : openThreads();
  const open = async () => ({
    verdicts: verdictTokenizer(prompt, await configuredTokenizer(model)),
    store: await TokenStoreWriter.create(directory),
  });
  const { verdicts, store } = await open().catch(async (error: unknown) => {
    await Promise.all(helpers.map((helper) => helper.close()));
    throw error;
  });
  const encodeHere = (record: StepRecord) => encodeRecord(verdicts, record, encoding);
  const reports: LoadReport[] = [];
  const leftOut = new Map<LeftOut, number>();
  async function* read() {
    for await (const { part, record: given } of dividedRecords(data, reports, { problems: false })) {
      const record = labels ? relabelled(given, part, labels) : given;
      if (typeof record === 'string') leftOut.set(record, (leftOut.get(record) ?? 0) + 1);
      else yield { part, record, text: exactText(record) };
    }
  }
  let written = 0;
  try {
    for await (const { given, encoded } of encodedInOrder(read(), encodeHere, openThreads, helpers)) {
      const { part, record, text } = given;
      const { key, stepKeys, ids, promptEnd, stepEnds, rank } = encoded;
      const adding = store.add({ part, record, text, key, stepKeys, ids, promptEnd, stepEnds, rank });
      if (adding !== undefined) await adding;
      if (++written % TELL_EVERY === 0) onProgress(written);
    }
  } catch (error) {
    await store.abandon();
    throw error;
  }
  await store.finish({ reports: reports.map(writtenReport), leftOut: [...leftOut] });
}

/** Bytes of the files of the data that are here. */
function bytesToRead({ train, validation, test }: DataConfig): number {
  const paths = [...trainingFiles(train).map(({ path }) => path), validation, test];
  return paths.reduce(
    (sum, path) => sum + (path === undefined ? 0 : (statSync(path, { throwIfNoEntry: false })?.size ?? 0)),
    0,
  );
}

/** A report as JSON. */
function writtenReport({ skipped, unlabelled, unasked, firstBadRow, ...counts }: LoadReport) {
  return {
    ...counts,
    firstBadRow,
    skipped: [...skipped],
    unlabelled: [...unlabelled],
    unasked: [...unasked],
  };
}

interface Notes {
  readonly reports: readonly ReturnType<typeof writtenReport>[];
  /** Solutions that the rules of labelling leave out, by reason. */
  readonly leftOut: readonly (readonly [LeftOut, number])[];
}

/** The notes of `tokenizeData` in a token store. */
export function readNotes(notes: unknown): {
  readonly reports: readonly LoadReport[];
  readonly leftOut: ReadonlyMap<LeftOut, number>;
} {
  const { reports, leftOut } = notes as Notes;
  return {
    leftOut: new Map(leftOut),
    reports: reports.map(({ skipped, unlabelled, unasked, firstBadRow, ...counts }) => ({
      ...counts,
      firstBadRow,
      skipped: new Map(skipped),
      unlabelled: new Map(unlabelled),
      unasked: new Map(unasked),
    })),
  };
}
