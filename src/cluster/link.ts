/**
 * The processes of a job as a star around rank 0: who they are, their data, their signs of life, the first error.
 * A thread of its own runs it (`link-thread.ts`), so that signs of life go on while the main thread is busy.
 */
import { connect, createServer, type Server, type Socket } from 'node:net';
import { hostname } from 'node:os';
import { attempt } from '../native/attempt.js';
import type { Place } from './environment.js';
import { type Frame, FrameReader, MAX_BYTES, MAX_HELLO, sendFrame } from './frames.js';

export interface LinkOptions {
  readonly place: Pick<Place, 'rank' | 'size' | 'localSize' | 'job' | 'host' | 'ports'>;
  /** Values that must be the same in all processes, by the name in the sentence that refuses a difference. */
  readonly greeting: Readonly<Record<string, string>>;
  /** Seconds of silence after which a process counts as lost. Default 15. */
  readonly silentSeconds?: number;
  /** Seconds to wait until all have joined. Default 300. */
  readonly joinSeconds?: number;
  /** Until it is said who is waited for. Default 5. */
  readonly quietSeconds?: number;
  /** Seconds during which the name of rank 0's host may be unknown, as that of a pod is until it runs. Default 30. */
  readonly unknownSeconds?: number;
}

export type LinkEvent =
  | { readonly kind: 'ready' }
  /** The processes waited for, once that takes long. */
  | { readonly kind: 'waits'; readonly text: string }
  /** On rank 0 from rank `from`, elsewhere from rank 0. */
  | { readonly kind: 'data'; readonly from: number; readonly number: number; readonly bytes: Uint8Array }
  /** Another process ended, failed, is silent or differs; all end. */
  | { readonly kind: 'lost'; readonly reason: string };

export interface Link {
  /** Sends bytes to rank `to`: from rank 0 to any, from the others to rank 0 alone. */
  send(to: number, number: number, bytes: Uint8Array): void;
  /** Tells all others why this process fails; resolves once they could hear it. */
  fail(reason: string): Promise<void>;
  /** Ends in peace: the others do not count it as lost. */
  close(): Promise<void>;
}

interface Hello extends Pick<Place, 'rank' | 'size' | 'job' | 'host'> {
  readonly pid: number;
  readonly greeting: Readonly<Record<string, string>>;
}

interface Peer {
  readonly rank: number;
  readonly name: string;
  readonly socket: Socket;
  heard: number;
  left: boolean;
}

const REDIAL_MS = 200;
const STRANGER_MS = 10_000;

export function openLink(options: LinkOptions, tell: (event: LinkEvent) => void): Link {
  return new Star(options, tell);
}

class Star implements Link {
  private readonly peers = new Map<number, Peer>();
  private readonly timers = new Set<NodeJS.Timeout>();
  private server: Server | undefined;
  private ready = false;
  private over = false;
  private readonly silentMs: number;
  private readonly unknownMs: number;
  private lastBeat = Date.now();
  /** Since when the name of rank 0's host resolves to no address. */
  private unknownSince: number | undefined;

  constructor(
    private readonly options: LinkOptions,
    private readonly tell: (event: LinkEvent) => void,
  ) {
    const { silentSeconds = 15, joinSeconds = 300, quietSeconds = 5, unknownSeconds = 30, place } = options;
    this.silentMs = silentSeconds * 1000;
    this.unknownMs = unknownSeconds * 1000;
    this.timers.add(setInterval(() => this.beat(), this.silentMs / 10));
    this.later(() => this.waits(joinSeconds), quietSeconds * 1000);
    this.later(() => this.missing(joinSeconds), joinSeconds * 1000);
    if (place.size === 1) queueMicrotask(() => this.complete());
    else if (place.rank === 0) this.listen(0);
    else this.dial(0);
  }

  send(to: number, number: number, bytes: Uint8Array): void {
    const peer = this.peers.get(to);
    if (peer) sendFrame(peer.socket, 'data', bytes, number);
  }

  async fail(reason: string): Promise<void> {
    if (this.over) return;
    const { rank } = this.options.place;
    await this.stop(`rank ${rank} on ${hostname()}: ${reason}`, false);
  }

  async close(): Promise<void> {
    if (this.over) return;
    this.over = true;
    for (const { socket } of this.peers.values()) sendFrame(socket, 'bye');
    await this.end();
  }

  // Rank 0.

  private listen(attempt: number): void {
    const { ports, host, size, localSize } = this.options.place;
    const port = ports[attempt];
    if (port === undefined) {
      this.stop(
        `rank 0 cannot listen on ${host}: ports ${ports[0]} to ${ports.at(-1)} are all taken; set MASTER_PORT to a free one`,
      );
      return;
    }
    const server = createServer((socket) => this.greet(socket));
    server.on('error', ({ code, message }: NodeJS.ErrnoException) => {
      if (this.server || this.over) return; // It listens, and failed to accept a connection, which will be tried again.
      if (code === 'EADDRINUSE') this.listen(attempt + 1);
      else
        this.stop(
          `rank 0 cannot listen on ${host}, port ${port} (${code ?? message}); ` +
            'set MASTER_ADDR to an address of its machine and MASTER_PORT to a free port above 1023',
        );
    });
    // In some jobs on several machines the master's variables say localhost.
    const isOneMachine = localSize === size && /^(127\.|::1$|localhost$)/.test(host);
    server.listen({ port, ...(isOneMachine ? { host } : {}) }, () => {
      if (this.over) server.close();
      else this.server = server;
    });
  }

  /** A stranger becomes a peer by its hello, or is sent away. */
  private greet(socket: Socket): void {
    const timer = setTimeout(() => socket.destroy(), STRANGER_MS);
    let peer: Peer | undefined;
    this.read(socket, {
      limit: () => (peer ? MAX_BYTES : MAX_HELLO),
      name: () => peer?.name ?? 'a stranger',
      closed: () => {
        clearTimeout(timer);
        if (peer) this.gone(peer);
      },
      frame: (frame) => {
        if (peer) {
          this.heard(peer, frame);
          return;
        }
        clearTimeout(timer);
        const hello = frame.kind === 'hello' ? readHello(frame.bytes) : undefined;
        // A process of another job, which will try the next port.
        if (hello?.job === this.options.place.job) peer = this.join(hello, socket);
        else socket.destroy();
      },
    });
  }

  private join(hello: Hello, socket: Socket): Peer | undefined {
    const { place, greeting } = this.options;
    const name = `rank ${hello.rank} on ${hello.host} (process ${hello.pid})`;
    const known = this.peers.get(hello.rank);
    const tooMuch = known
      ? `${name} has the rank of the one ${known.name.replace(/^rank \d+ /, '')}: two jobs share an address, or a rank was started twice`
      : undefined;
    const other =
      hello.size !== place.size
        ? `${name} counts ${hello.size} processes, and rank 0 ${place.size}`
        : hello.rank <= 0 || hello.rank >= place.size
          ? `${name} is none of 1 to ${place.size - 1}`
          : difference(greeting, hello.greeting, name);
    const reason = tooMuch ?? other;
    if (reason !== undefined) {
      sendFrame(socket, 'stop', Buffer.from(reason));
      socket.destroySoon();
      // A process whose place is taken ends alone; a differing one leaves its place empty, which ends the job.
      if (!known && !this.ready) this.stop(reason);
      return undefined;
    }
    const peer = { rank: hello.rank, name, socket, heard: Date.now(), left: false };
    this.peers.set(hello.rank, peer);
    if (this.peers.size === place.size - 1) this.complete();
    return peer;
  }

  private complete(): void {
    this.ready = true;
    if (this.options.place.rank === 0)
      for (const { socket } of this.peers.values()) sendFrame(socket, 'welcome');
    this.tell({ kind: 'ready' });
  }

  // The others.

  private dial(attempt: number): void {
    if (this.over) return;
    const { host, ports, rank, size, job } = this.options.place;
    const socket = connect({ host, port: ports[attempt % ports.length] as number });
    const peer: Peer = { rank: 0, name: `rank 0 on ${host}`, socket, heard: Date.now(), left: false };
    socket.once('connect', () => {
      const hello: Hello = {
        rank,
        size,
        job,
        host: hostname(),
        pid: process.pid,
        greeting: this.options.greeting,
      };
      this.unknownSince = undefined;
      this.peers.set(0, peer);
      sendFrame(socket, 'hello', Buffer.from(JSON.stringify(hello)));
    });
    socket.on('error', (error) => this.unreached(error));
    this.read(socket, {
      limit: () => MAX_BYTES,
      name: () => peer.name,
      // Until rank 0 has welcomed everybody, a closed connection is one to another job, or comes too early.
      closed: () => {
        if (this.ready || this.over) {
          this.gone(peer);
          return;
        }
        this.peers.delete(0);
        this.later(
          () => this.dial(attempt + 1),
          attempt % ports.length === ports.length - 1 ? REDIAL_MS : 20,
        );
      },
      frame: (frame) => this.heard(peer, frame),
    });
  }

  // Both.

  private read(
    socket: Socket,
    on: {
      readonly limit: () => number;
      readonly name: () => string;
      readonly closed: () => void;
      readonly frame: (frame: Frame) => void;
    },
  ): void {
    socket.setNoDelay(true);
    const reader = new FrameReader(on.limit);
    socket.on('error', () => {}); // 'close' follows
    socket.on('close', on.closed);
    socket.on('data', (data) => {
      for (const frame of reader.read(data)) {
        if (typeof frame === 'string') {
          socket.destroy();
          return;
        }
        if (this.over) return;
        on.frame(frame);
      }
      const peer = [...this.peers.values()].find((other) => other.socket === socket);
      if (peer) peer.heard = Date.now();
    });
  }

  private heard(peer: Peer, { kind, number, bytes }: Frame): void {
    peer.heard = Date.now();
    if (kind === 'data') this.tell({ kind: 'data', from: peer.rank, number, bytes: owned(bytes) });
    else if (kind === 'stop') this.stop(bytes.toString());
    else if (kind === 'bye') peer.left = true;
    else if (kind === 'welcome') this.complete();
  }

  private gone(peer: Peer): void {
    if (this.over || peer.left) return;
    this.stop(`${peer.name} ended`);
  }

  private beat(): void {
    if (this.over) return;
    const now = Date.now();
    // This process itself was suspended, with its machine or its job step: messages that came meanwhile are still to be
    // read.
    if (now - this.lastBeat > this.silentMs / 2) for (const peer of this.peers.values()) peer.heard = now;
    this.lastBeat = now;
    for (const peer of this.peers.values()) {
      sendFrame(peer.socket, 'beat');
      if (!peer.left && now - peer.heard > this.silentMs)
        this.stop(`${peer.name} has said nothing for ${this.silentMs / 1000} s`);
    }
  }

  /** An address or a name server without an answer may come up; an unknown name is most often a mistake. */
  private unreached({ code }: NodeJS.ErrnoException): void {
    if (code !== 'ENOTFOUND') {
      this.unknownSince = undefined;
      return;
    }
    const { place } = this.options;
    this.unknownSince ??= Date.now();
    if (Date.now() - this.unknownSince < this.unknownMs) return;
    this.stop(
      `rank ${place.rank} on ${hostname()} finds no address of ${place.host}, the host of rank 0, for ${this.unknownMs / 1000} s; ` +
        'set MASTER_ADDR to a name or an address that all machines know',
    );
  }

  private waits(limit: number): void {
    if (this.ready || this.over) return;
    const { rank, host, ports } = this.options.place;
    const whom =
      rank === 0
        ? this.absent
        : this.unknownSince === undefined
          ? `rank 0 on ${host}, ports ${ports[0]} to ${ports.at(-1)}`
          : `rank 0 on ${host}, a name of which no address is known here`;
    const seconds = this.unknownSince === undefined ? limit : this.unknownMs / 1000;
    this.tell({
      kind: 'waits',
      text: `rank ${rank} on ${hostname()} waits for ${whom}; at most ${seconds} s`,
    });
  }

  private missing(seconds: number): void {
    if (this.ready || this.over) return;
    const { rank, size, host, ports } = this.options.place;
    const who =
      rank === 0
        ? `${size - 1 - this.peers.size} of ${size} processes have not come within ${seconds} s: ${this.absent}`
        : `rank 0 of ${size} does not answer on ${host}, ports ${ports[0]} to ${ports.at(-1)}, for ${seconds} s`;
    this.stop(`${who}; where all run, set MASTER_ADDR and MASTER_PORT, for all the same`);
  }

  /** On rank 0 who has not come. */
  private get absent(): string {
    const { size } = this.options.place;
    const ranks = Array.from({ length: size - 1 }, (_, i) => i + 1);
    return `rank ${ranks.filter((rank) => !this.peers.has(rank)).join(', ')}`;
  }

  /** All hear the first reason, then the links close. */
  private stop(reason: string, tells = true): Promise<void> {
    if (this.over) return Promise.resolve();
    this.over = true;
    for (const { socket } of this.peers.values()) sendFrame(socket, 'stop', Buffer.from(reason));
    if (tells) this.tell({ kind: 'lost', reason });
    return this.end();
  }

  private async end(): Promise<void> {
    for (const timer of this.timers) clearInterval(timer);
    this.server?.close();
    await Promise.all(
      [...this.peers.values()].map(
        ({ socket }) =>
          new Promise<void>((resolve) => {
            // A stopped process reads nothing any more.
            const timer = setTimeout(() => socket.destroy(), 2000);
            socket.once('close', () => {
              clearTimeout(timer);
              resolve();
            });
            if (socket.destroyed) socket.emit('close');
            else socket.end();
            socket.resume();
          }),
      ),
    );
  }

  private later(work: () => void, ms: number): void {
    const timer = setTimeout(() => {
      this.timers.delete(timer);
      work();
    }, ms);
    this.timers.add(timer);
  }
}

/** A copy whose memory holds these bytes alone: it goes to another thread. */
function owned(bytes: Buffer): Uint8Array {
  const { buffer, byteLength } = bytes;
  return byteLength === buffer.byteLength ? new Uint8Array(buffer) : new Uint8Array(bytes);
}

function readHello(bytes: Buffer): Hello | undefined {
  return attempt(() => {
    const hello = JSON.parse(bytes.toString()) as Partial<Hello> | null;
    const { rank, size, job, host, pid, greeting } = hello ?? {};
    if (typeof rank !== 'number' || typeof size !== 'number' || typeof job !== 'string') return undefined;
    if (typeof host !== 'string' || typeof pid !== 'number' || typeof greeting !== 'object') return undefined;
    return { rank, size, job, host, pid, greeting: greeting ?? {} };
  });
}

function difference(
  ours: Readonly<Record<string, string>>,
  theirs: Readonly<Record<string, string>>,
  name: string,
): string | undefined {
  const key = [...new Set([...Object.keys(ours), ...Object.keys(theirs)])].find(
    (each) => ours[each] !== theirs[each],
  );
  if (key === undefined) return undefined;
  return `${name} has another ${key} than rank 0 (${theirs[key] ?? 'none'}, not ${ours[key] ?? 'none'}): start all processes with the same one`;
}
