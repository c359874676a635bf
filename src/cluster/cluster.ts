/** Collectives among the processes of a job, with results that are the same bits for everybody and for any number of them. */
import { existsSync } from 'node:fs';
import { Worker } from 'node:worker_threads';
import { StepTrainError } from '../native/errors.js';
import type { Place } from './environment.js';
import { MAX_BYTES } from './frames.js';
import { type Link, type LinkEvent, type LinkOptions, openLink } from './link.js';
import { addFloats, addTree, type ShardSum } from './shards.js';
import { Waiting } from './waiting.js';

export interface Cluster {
  readonly place: Pick<Place, 'rank' | 'size' | 'localRank' | 'localSize' | 'mpi'>;
  readonly rank: number;
  readonly size: number;
  /** Aborted with the reason when another process is lost. */
  readonly lost: AbortSignal;
  /** For the others, in what follows and in carriers. */
  readonly waiting: Waiting;
  /** The bytes that each process gave, by rank. All processes call it, in the same order of calls. */
  gather(bytes: Uint8Array): Promise<readonly Uint8Array[]>;
  /** The same on rank 0, and undefined elsewhere: for what only rank 0 writes. */
  collect(bytes: Uint8Array): Promise<readonly Uint8Array[] | undefined>;
  /**
   * The sum of all shards of all processes, f32, as a binary tree over the shards' numbers: it depends neither on the number
   * of processes nor on which process has which shard.
   *
   * @param shards of this process: sums over aligned runs of shards, of `length` elements each
   */
  sum(shards: readonly ShardSum[], length: number): Promise<Float32Array>;
  /** Tells the others why this process ends; resolves once they could hear it. */
  fail(reason: string): Promise<void>;
  /** All processes call it at their end, which none then takes for a loss. */
  close(): Promise<void>;
}

export interface ClusterOptions extends LinkOptions {
  readonly place: LinkOptions['place'] & Cluster['place'];
}

/**
 * Waits until all processes of the job are there.
 *
 * @throws StepTrainError E_CLUSTER where one is missing, or differs in what `greeting` holds
 */
export async function joinCluster(options: ClusterOptions): Promise<Cluster> {
  const cluster = new StarCluster(options);
  await cluster.ready;
  return cluster;
}

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

  constructor({ place, ...rest }: ClusterOptions) {
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

  async sum(shards: readonly ShardSum[], length: number): Promise<Float32Array> {
    const wrong = shards.find(({ values }) => values.length !== length);
    if (wrong)
      throw new StepTrainError(
        'E_SHAPE',
        `a shard has ${wrong.values.length} elements, and the sum ${length}`,
      );
    return this.waiting.during(this.summed(this.next(), shards, length));
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

  private async summed(number: number, shards: readonly ShardSum[], length: number): Promise<Float32Array> {
    const body = this.rank === 0 ? new Uint8Array() : writeShards(shards, length);
    const parts = await this.toRoot(number, body, true);
    const others = parts?.slice(1).flatMap((part) => readShards(part, length));
    const all = others && [...shards, ...others];
    const summed = await this.fromRoot(number + 1, all && bytesOf(addTree(all, addFloats)));
    return new Float32Array(summed.buffer, summed.byteOffset, length);
  }

  /** Of the way to rank 0; the way back has the number after it. Calls that overlap keep their order. */
  private next(): number {
    this.number += 2;
    return this.number;
  }

  /** On rank 0 everybody's bytes by rank, elsewhere undefined. */
  private async toRoot(
    number: number,
    bytes: Uint8Array,
    given = false,
  ): Promise<readonly Uint8Array[] | undefined> {
    if (this.rank > 0) {
      this.send(0, number, bytes, given);
      return undefined;
    }
    const others = Array.from({ length: this.size - 1 }, (_, i) => i + 1);
    const parts = await this.receive(number, others);
    return [bytes, ...parts];
  }

  /** Rank 0's bytes. */
  private async fromRoot(number: number, bytes: Uint8Array | undefined): Promise<Uint8Array> {
    if (this.rank > 0) return (await this.receive(number, [0]))[0] as Uint8Array;
    const own = bytes as Uint8Array;
    for (let other = 1; other < this.size; other++) this.send(other, number, own);
    return own;
  }

  /** In pieces; the first says how many bytes there are. @param given whether nobody else uses their memory, all of which is theirs */
  private send(to: number, number: number, bytes: Uint8Array, given = false): void {
    const head = new Uint8Array(8);
    new DataView(head.buffer).setFloat64(0, bytes.length);
    this.link.send(to, number, head);
    for (let at = 0; at < bytes.length; at += MAX_BYTES)
      // A copy with memory of its own: that of a short Buffer is shared, and must not go to another thread.
      this.link.send(
        to,
        number,
        given && bytes.length <= MAX_BYTES ? bytes : new Uint8Array(bytes.subarray(at, at + MAX_BYTES)),
      );
  }

  private receive(number: number, from: readonly number[]): Promise<readonly Uint8Array[]> {
    const arrived = new Promise<readonly Uint8Array[]>((resolve) => {
      const expected = this.expected(number);
      const check = () => {
        const whole = from.map((rank) => wholeOf(expected.parts.get(rank)));
        if (!whole.every((part) => part !== undefined)) return;
        this.pending.delete(number);
        resolve(whole as Uint8Array[]);
      };
      this.pending.set(number, { parts: expected.parts, check });
      check();
    });
    return Promise.race([arrived, this.failure]);
  }

  /** What comes before anybody waits for it is kept. */
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

/** The pieces as one, once all are there. */
function wholeOf(parts: readonly Uint8Array[] | undefined): Uint8Array | undefined {
  if (!parts) return undefined;
  const [head, ...pieces] = parts as [Uint8Array, ...Uint8Array[]];
  const length = new DataView(head.buffer, head.byteOffset).getFloat64(0);
  const arrived = pieces.reduce((sum, piece) => sum + piece.length, 0);
  if (arrived < length) return undefined;
  if (pieces.length === 1) return pieces[0] as Uint8Array;
  const whole = new Uint8Array(length);
  let at = 0;
  for (const piece of pieces) {
    whole.set(piece, at);
    at += piece.length;
  }
  return whole;
}

function joinParts(parts: readonly Uint8Array[]): Uint8Array {
  const lengths = Float64Array.from(parts, ({ length }) => length);
  const joined = new Uint8Array(lengths.byteLength + parts.reduce((sum, { length }) => sum + length, 0));
  joined.set(bytesOf(lengths));
  let at = lengths.byteLength;
  for (const part of parts) {
    joined.set(part, at);
    at += part.length;
  }
  return joined;
}

function splitParts(joined: Uint8Array, size: number): readonly Uint8Array[] {
  const lengths = new Float64Array(joined.slice(0, size * 8).buffer);
  let at = size * 8;
  return Array.from(lengths, (length) => {
    at += length;
    return joined.slice(at - length, at);
  });
}

function writeShards(shards: readonly ShardSum[], length: number): Uint8Array {
  const head = Uint32Array.from([shards.length, ...shards.flatMap(({ first, count }) => [first, count])]);
  const body = new Uint8Array(head.byteLength + shards.length * length * 4);
  body.set(new Uint8Array(head.buffer));
  for (const [i, { values }] of shards.entries()) body.set(bytesOf(values), head.byteLength + i * length * 4);
  return body;
}

/** Windows on the body, whose memory is its own. */
function readShards(body: Uint8Array, length: number): ShardSum[] {
  const view = new DataView(body.buffer, body.byteOffset);
  const count = view.getUint32(0, true);
  return Array.from({ length: count }, (_, i) => {
    const at = 4 + count * 8 + i * length * 4;
    return {
      first: view.getUint32(4 + i * 8, true),
      count: view.getUint32(8 + i * 8, true),
      values: new Float32Array(body.buffer, body.byteOffset + at, length),
    };
  });
}

const bytesOf = ({ buffer, byteOffset, byteLength }: Float32Array | Float64Array) =>
  new Uint8Array(buffer, byteOffset, byteLength);
