// Tokenises the data of a run into a store, in a worker thread so that the program stays responsive.
import { existsSync } from 'node:fs';
import { Worker } from 'node:worker_threads';
import type { DataConfig, ModelConfig, PromptConfig } from '../config/schema.js';
import type { LoadReport } from '../data/load.js';
import { problemKey } from '../data/overlap.js';
import { TokenStoreWriter } from '../data/token-store.js';
import { verdictTokenizer } from '../data/verdict.js';
import { DataError } from '../files/data-error.js';
import { dividedRecords } from './parts.js';
import { configuredTokenizer } from './tokenizer.js';

export interface TokenizeJob {
  readonly data: DataConfig;
  readonly model: ModelConfig;
  readonly prompt: PromptConfig;
  /** Empty; the store is written into it. */
  readonly directory: string;
}

/** Messages of the worker thread. */
export type TokenizeMessage =
  | { readonly solutions: number }
  | { readonly done: true }
  | { readonly failure: { readonly kind: DataError['kind']; readonly message: string } };

const TELL_EVERY = 1000;

/** Print a line if it takes longer than this. */
const NOTE_MS = 5000;

/**
 * Tokenises in a worker. Gives false if the signal stopped it.
 *
 * @throws DataError as `dividedRecords` does
 */
export async function tokenizeInWorker(job: TokenizeJob, signal: AbortSignal): Promise<boolean> {
  // It may have come while the data was hashed; a listener would not hear of it any more.
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
        else if ('failure' in message) reject(new DataError(message.failure.kind, message.failure.message));
        else if (performance.now() - notedAt > NOTE_MS) {
          notedAt = performance.now();
          console.error(`tokenised ${message.solutions} solutions`);
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

/** Tokenises in the calling thread. */
export async function tokenizeData(
  { data, model, prompt, directory }: TokenizeJob,
  onProgress: (solutions: number) => void,
): Promise<void> {
  const verdicts = verdictTokenizer(prompt, await configuredTokenizer(model));
  const store = await TokenStoreWriter.create(directory);
  const reports: LoadReport[] = [];
  let solutions = 0;
  try {
    for await (const { part, record } of dividedRecords(data, reports)) {
      const { trunk } = verdicts.solution(record);
      await store.add({
        part,
        record,
        key: problemKey(record.problem),
        ids: trunk.ids,
        promptEnd: trunk.steps[0]?.start ?? trunk.ids.length,
        stepEnds: trunk.steps.map(({ end }) => end),
      });
      if (++solutions % TELL_EVERY === 0) onProgress(solutions);
    }
  } catch (error) {
    await store.abandon();
    throw error;
  }
  await store.finish(reports.map(writtenReport));
}

/** A report as JSON. */
function writtenReport({ skipped, unlabelled, firstBadRow, ...counts }: LoadReport) {
  return { ...counts, firstBadRow, skipped: [...skipped], unlabelled: [...unlabelled] };
}

/** The reports that `tokenizeData` left in a store. */
export function readReports(notes: unknown): readonly LoadReport[] {
  return (notes as ReturnType<typeof writtenReport>[]).map(
    ({ skipped, unlabelled, firstBadRow, ...counts }) => ({
      ...counts,
      firstBadRow,
      skipped: new Map(skipped),
      unlabelled: new Map(unlabelled),
    }),
  );
}
