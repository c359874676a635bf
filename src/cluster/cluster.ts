/** Collectives among the processes of a job, with results that are the same bits for everybody and for any number of them. */
import { existsSync } from 'node:fs';
import { Worker } from 'node:worker_threads';
import { StepTrainError } from '../native/errors.js';
import { joined } from '../native/joined.js';
import type { Place } from './environment.js';
import { MAX_BYTES } from './frames.js';
import { type Link, type LinkEvent, type LinkOptions, openLink } from './link.js';
import { addFloats, addTree, type ShardSum } from './shards.js';
import { Waiting } from './waiting.js';

/** Elements `begin` … `end − 1` of something. */
export interface Part {
  readonly begin: number;
  readonly end: number;
}

export interface Cluster {
  readonly place: Pick<Place, 'rank' | 'size' | 'localRank' | 'localSize' | 'cores' | 'mpi'>;
  readonly rank: number;
  readonly size: number;
  /** Aborted with the reason when another process is lost. */
  readonly lost: AbortSignal;
  /** Time spent waiting for the other processes, in the calls below and in carriers. */
  readonly waiting: Waiting;
  /** The bytes of all processes, by rank. All processes call it, in the same order of calls. */
  gather(bytes: Uint8Array): Promise<readonly Uint8Array[]>;
  /** The same on rank 0, and undefined elsewhere: for what only rank 0 writes. */
  collect(bytes: Uint8Array): Promise<readonly Uint8Array[] | undefined>;
  /**
   * The sum of all shards of all processes, f32, as a binary tree over the shards' numbers: it depends neither on the
   * number of processes nor on which process has which shard. Several may be under way, in the order of their calls;
   * their time does not count as waiting.
   *
   * @param shards of this process: sums over aligned runs of shards, of `length` elements each, whose memory is given
   * away
   * @param parts the elements that each process needs, by rank, the same in all calls; absent: all of them
   * @returns the part of this process
   */
  sum(shards: Promise<readonly ShardSum[]>, length: number, parts?: readonly Part[]): Promise<Float32Array>;
  /** Tells the others why this process ends; resolves once they could hear it. */
  fail(reason: string): Promise<void>;
  /** All processes call it at their end, which none then takes for a loss. */
  close(): Promise<void>;
}

export interface ClusterOptions extends LinkOptions {
  /** Called with the processes that this one waits for, once it has waited for some seconds. */
  readonly say?: (text: string) => void;
  readonly place: LinkOptions['place'] & Cluster['place'];
}

/**
 * Waits until all processes of the job have joined.
 *
 * @throws StepTrainError E_CLUSTER where one is missing, or has another `greeting`
 */
export async function joinCluster(options: ClusterOptions): Promise<Cluster> {
  const cluster = new StarCluster(options);
  await cluster.ready;
  return cluster;
}

/** Bytes as they travel: one after the other. */
type Pieces = readonly Uint8Array[];

interface Expected {
  readonly parts: Map<number, Uint8Array[]>;
  check(): void;
}

class StarCluster implements Cluster {
  readonly place: Cluster['place'];
  readonly rank: number;
  readonly size: number;
  readonly ready: Promise<void>;
  readonly waiting = new Waiting();
  private readonly link: Link;
  private readonly ended = new AbortController();
  private number = 0;
  private readonly pending = new Map<number, Expected>();
  private fails: (error: Error) => void = () => {};
  private readonly failure: Promise<never>;

  constructor({ place, say, ...rest }: ClusterOptions) {
    this.place = place;
    this.rank = place.rank;
    this.size = place.size;
    let joined: () => void = () => {};
    this.failure = new Promise<never>((_, reject) => {
      this.fails = reject;
    });
    this.failure.catch(() => {}); // whoever waits hears of it
    this.ready = Promise.race([
      new Promise<void>((resolve) => {
        joined = resolve;
      }),
      this.failure,
    ]);
    this.link = openInThread({ place, ...rest }, (event) => {
      if (event.kind === 'ready') joined();
      else if (event.kind === 'data') this.arrived(event);
      else if (event.kind === 'waits') say?.(event.text);
      else this.end(event.reason);
    });
  }

  get lost(): AbortSignal {
    return this.ended.signal;
  }

  async gather(bytes: Uint8Array): Promise<readonly Uint8Array[]> {
    if (this.size === 1) return [bytes];
    return this.waiting.during(this.gathered(this.next(), bytes));
  }

  async collect(bytes: Uint8Array): Promise<readonly Uint8Array[] | undefined> {
    return this.waiting.during(this.toRoot(this.next(), bytes));
  }

  async sum(
    shards: Promise<readonly ShardSum[]>,
    length: number,
    parts?: readonly Part[],
  ): Promise<Float32Array> {
    const number = this.next();
    const own = await shards;
    const wrong = own.find(({ values }) => values.length !== length);
    if (wrong)
      throw new StepTrainError(
        'E_SHAPE',
        `a shard has ${wrong.values.length} elements, and the sum ${length}`,
      );
    if (this.rank > 0) {
      this.give(0, number, writeShards(own));
      return floatsOf(asOne((await this.receive(number + 1, [0]))[0] as Pieces));
    }
    const others = await this.receive(number, this.others);
    const sum = addTree([...own, ...others.flatMap(readShards)], addFloats);
    const partOf = (rank: number) => sum.subarray(parts?.[rank]?.begin, parts?.[rank]?.end);
    for (const other of this.others) this.send(other, number + 1, bytesOf(partOf(other)));
    return partOf(0);
  }

  async fail(reason: string): Promise<void> {
    if (this.lost.aborted) return;
    const told = this.link.fail(reason);
    this.end(reason);
    await told;
  }

  async close(): Promise<void> {
    if (this.lost.aborted) return;
    await this.gather(new Uint8Array());
    await this.link.close();
  }

  private async gathered(number: number, bytes: Uint8Array): Promise<readonly Uint8Array[]> {
    const parts = await this.toRoot(number, bytes);
    const joined = await this.fromRoot(number + 1, parts && joinParts(parts));
    return splitParts(joined, this.size);
  }

  /** The ranks other than 0. */
  private get others(): readonly number[] {
    return Array.from({ length: this.size - 1 }, (_, i) => i + 1);
  }

  /** Number of the way to rank 0; the way back has the next one. Calls that overlap keep their order. */
  private next(): number {
    this.number += 2;
    return this.number;
  }

  /** On rank 0 everybody's bytes by rank, elsewhere undefined. */
  private async toRoot(number: number, bytes: Uint8Array): Promise<readonly Uint8Array[] | undefined> {
    if (this.rank > 0) {
      this.send(0, number, bytes);
      return undefined;
    }
    return [bytes, ...(await this.receive(number, this.others)).map(asOne)];
  }

  /** Rank 0's bytes. */
  private async fromRoot(number: number, bytes: Uint8Array | undefined): Promise<Uint8Array> {
    if (this.rank > 0) return asOne((await this.receive(number, [0]))[0] as Pieces);
    const own = bytes as Uint8Array;
    for (const other of this.others) this.send(other, number, own);
    return own;
  }

  private send(to: number, number: number, bytes: Uint8Array): void {
    const pieces: Uint8Array[] = [];
    // A copy with memory of its own: that of a short Buffer is shared, and must not go to another thread.
    for (let at = 0; at < bytes.length; at += MAX_BYTES)
      pieces.push(new Uint8Array(bytes.subarray(at, at + MAX_BYTES)));
    this.give(to, number, pieces);
  }

  /**
   * Sends pieces after a head with their number of bytes. @param pieces with memory of their own, which goes to another
   * thread
   */
  private give(to: number, number: number, pieces: Pieces): void {
    const bytes = pieces.reduce((sum, { length }) => sum + length, 0);
    for (const piece of [bytesOf(Float64Array.of(bytes)), ...pieces]) this.link.send(to, number, piece);
  }

  private receive(number: number, from: readonly number[]): Promise<readonly Pieces[]> {
    const arrived = new Promise<readonly Pieces[]>((resolve) => {
      const expected = this.expected(number);
      const check = () => {
        const whole = from.map((rank) => arrivedOf(expected.parts.get(rank)));
        if (!whole.every((part) => part !== undefined)) return;
        this.pending.delete(number);
        resolve(whole as Pieces[]);
      };
      this.pending.set(number, { parts: expected.parts, check });
      check();
    });
    return Promise.race([arrived, this.failure]);
  }

  /** The parts of an exchange so far. Bytes that come before anybody waits for them are kept. */
  private expected(number: number): Expected {
    let found = this.pending.get(number);
    if (!found) {
      found = { parts: new Map(), check: () => {} };
      this.pending.set(number, found);
    }
    return found;
  }

  private arrived({ from, number, bytes }: Extract<LinkEvent, { kind: 'data' }>): void {
    const expected = this.expected(number);
    const parts = expected.parts.get(from);
    if (parts) parts.push(bytes);
    else expected.parts.set(from, [bytes]);
    expected.check();
  }

  private end(reason: string): void {
    if (this.lost.aborted) return;
    const error = new StepTrainError('E_CLUSTER', reason);
    this.ended.abort(error);
    this.fails(error);
  }
}

function openInThread(options: LinkOptions, tell: (event: LinkEvent) => void): Link {
  const entry = new URL('./link-thread.js', import.meta.url);
  // Uncompiled sources, as in the tests, have no file that a worker could load.
  if (!existsSync(entry)) return openLink(options, tell);
  const worker = new Worker(entry, { workerData: options, execArgv: [] });
  worker.on('message', (event: LinkEvent) => {
    // The process ends when the main thread has nothing to do any more, and the thread does not hold it.
    if (event.kind === 'lost') worker.unref();
    tell(event);
  });
  worker.on('error', (error) =>
    tell({ kind: 'lost', reason: `the thread of the link failed: ${error.message}` }),
  );
  const closed = new Promise<void>((resolve) => worker.once('exit', () => resolve()));
  const last = (order: object) => {
    worker.postMessage(order);
    return closed;
  };
  return {
    send: (to, number, bytes) =>
      worker.postMessage({ order: 'send', to, number, bytes }, [bytes.buffer as ArrayBuffer]),
    fail: (reason) => last({ order: 'fail', reason }),
    close: () => last({ order: 'close' }),
  };
}

/** The pieces after a head, once all have arrived. */
function arrivedOf(parts: Pieces | undefined): Pieces | undefined {
  if (!parts) return undefined;
  const [head, ...pieces] = parts as [Uint8Array, ...Uint8Array[]];
  const arrived = pieces.reduce((sum, piece) => sum + piece.length, 0);
  return arrived < new DataView(head.buffer, head.byteOffset).getFloat64(0, true) ? undefined : pieces;
}

const asOne = (pieces: Pieces) => (pieces.length === 1 ? (pieces[0] as Uint8Array) : joined(pieces));

function joinParts(parts: readonly Uint8Array[]): Uint8Array {
  const lengths = Float64Array.from(parts, ({ length }) => length);
  return joined([bytesOf(lengths), ...parts]);
}

function splitParts(whole: Uint8Array, size: number): readonly Uint8Array[] {
  const lengths = new Float64Array(whole.slice(0, size * 8).buffer);
  let at = size * 8;
  return Array.from(lengths, (length) => {
    at += length;
    return whole.slice(at - length, at);
  });
}

/** The shards of a sum as bytes: the runs that they cover, then a piece for each. */
function writeShards(shards: readonly ShardSum[]): Pieces {
  const runs = Float64Array.from(shards.flatMap(({ first, count }) => [first, count]));
  return [runs, ...shards.map(({ values }) => values)].map(bytesOf);
}

function readShards([runs, ...values]: Pieces): ShardSum[] {
  const numbers = runs ? new Float64Array(runs.buffer, runs.byteOffset, runs.length / 8) : [];
  return values.map((bytes, i) => ({
    first: numbers[2 * i] as number,
    count: numbers[2 * i + 1] as number,
    values: floatsOf(bytes),
  }));
}

const bytesOf = ({ buffer, byteOffset, byteLength }: Float32Array | Float64Array) =>
  new Uint8Array(buffer, byteOffset, byteLength);
const floatsOf = ({ buffer, byteOffset, byteLength }: Uint8Array) =>
  new Float32Array(buffer, byteOffset, byteLength / 4);
