/** Encodes records on threads beside the calling one, which encodes too while they are busy. */
import { existsSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import { Worker } from 'node:worker_threads';
import type { ModelConfig, PromptConfig } from '../config/schema.js';
import type { StepRecord } from '../records/record.js';
import type { EncodedRecord } from './encode.js';
import { receivedError, type SentDataError } from './sent-error.js';

export interface EncoderJob {
  readonly model: Pick<ModelConfig, 'base' | 'tokenizer'>;
  readonly prompt: PromptConfig;
  /** Tokens up to the last step, not only to the last labelled one. */
  readonly whole: boolean;
  /** `data.seed`. */
  readonly seed: number;
}

/** The answer of a thread to a batch. */
export type EncoderMessage =
  | { readonly records: readonly EncodedRecord[] }
  | { readonly failure: SentDataError };

/** A thread that encodes batches of records, given as JSON lines, in the order that it gets them. */
export interface EncoderThread {
  encode(texts: readonly string[]): Promise<readonly EncodedRecord[]>;
  close(): Promise<void>;
}

/** Batches that a thread has at once, so that it never waits for the next one. */
const AT_ONCE = 2;

/** More threads would wait for the one that reads and writes, which is a third of the work. */
const MAX_THREADS = 3;

/** Solutions that are encoded together, and after how many of them other threads help: each loads the tokenizer first. */
const BATCH = 128;
const ALONE = 16 * BATCH;

/** A record to encode, also as a JSON line, which threads get. */
export interface RecordToEncode {
  readonly record: StepRecord;
  readonly text: string;
}

/**
 * Gives records and what is encoded of each, in their order.
 *
 * @param threads helpers from the beginning, which it closes
 * @param openThreads is called once there are many, where there are none
 * @throws the error of the first record that cannot be encoded, also if a later one could not be read
 */
export async function* encodedInOrder<T extends RecordToEncode>(
  records: AsyncIterable<T>,
  encodeHere: (record: StepRecord) => EncodedRecord,
  openThreads: () => readonly EncoderThread[],
  threads: readonly EncoderThread[] = [],
): AsyncGenerator<{ readonly given: T; readonly encoded: EncodedRecord }> {
  const waiting: { readonly batch: readonly T[]; readonly encoded: Promise<readonly EncodedRecord[]> }[] = [];
  let encoders = new Encoders(threads, encodeHere);
  let batch: T[] = [];
  let begun = 0;
  const send = () => {
    if (begun >= ALONE && encoders.ahead === 0) encoders = new Encoders(openThreads(), encodeHere);
    begun += batch.length;
    const encoded = encoders.encode(batch);
    // A batch that fails is met when its turn comes.
    encoded.catch(() => {});
    waiting.push({ batch, encoded });
    batch = [];
  };
  async function* done(most: number) {
    for (let next = waiting[0]; next && waiting.length > most; next = waiting[0]) {
      const encoded = await next.encoded;
      for (const [i, given] of next.batch.entries()) yield { given, encoded: encoded[i] as EncodedRecord };
      waiting.shift();
    }
  }
  try {
    for await (const one of records) {
      batch.push(one);
      if (batch.length < BATCH) continue;
      send();
      yield* done(encoders.ahead);
    }
    send();
    yield* done(0);
  } catch (error) {
    send();
    for (const { encoded } of waiting) await encoded;
    throw error;
  } finally {
    await encoders.close();
  }
}

export class Encoders {
  private readonly waiting = new Map<EncoderThread, number>();

  constructor(
    threads: readonly EncoderThread[],
    private readonly encodeHere: (record: StepRecord) => EncodedRecord,
  ) {
    for (const thread of threads) this.waiting.set(thread, 0);
  }

  /** Batches to ask for before the oldest is taken. */
  get ahead(): number {
    return this.waiting.size * AT_ONCE;
  }

  async encode(batch: readonly RecordToEncode[]): Promise<readonly EncodedRecord[]> {
    const [thread, count] = [...this.waiting].sort((a, b) => a[1] - b[1])[0] ?? [];
    if (!thread || count === undefined || count >= AT_ONCE)
      return batch.map(({ record }) => this.encodeHere(record));
    this.waiting.set(thread, count + 1);
    try {
      return await thread.encode(batch.map(({ text }) => text));
    } finally {
      this.waiting.set(thread, (this.waiting.get(thread) as number) - 1);
    }
  }

  async close(): Promise<void> {
    await Promise.all([...this.waiting.keys()].map((thread) => thread.close()));
  }
}

/** Threads for the usable cores but one; none where the sources are not compiled, as in tests. */
export function encoderThreads(job: EncoderJob, cores = availableParallelism()): EncoderThread[] {
  const entry = new URL('./encoder-worker.js', import.meta.url);
  const count = existsSync(entry) ? Math.min(MAX_THREADS, cores - 1) : 0;
  return Array.from({ length: count }, () =>
    encoderThread(new Worker(entry, { workerData: job, execArgv: [] })),
  );
}

function encoderThread(worker: Worker): EncoderThread {
  const asked: { resolve(records: readonly EncodedRecord[]): void; reject(error: unknown): void }[] = [];
  let broken: unknown;
  worker.on('message', (message: EncoderMessage) => {
    const first = asked.shift();
    if ('records' in message) first?.resolve(message.records);
    else first?.reject(receivedError(message.failure));
  });
  worker.on('error', (error) => {
    broken = error;
    for (const { reject } of asked.splice(0)) reject(error);
  });
  return {
    encode(texts) {
      if (broken !== undefined) return Promise.reject(broken);
      return new Promise((resolve, reject) => {
        asked.push({ resolve, reject });
        worker.postMessage(texts);
      });
    },
    async close() {
      await worker.terminate();
    },
  };
}
