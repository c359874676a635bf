// Processes of a job in one process: what they exchange, and what each hears when one is lost.
import dns from 'node:dns';
import { connect, createServer, Server, type Socket } from 'node:net';
import { networkInterfaces } from 'node:os';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { type Cluster, joinCluster } from '../../src/cluster/cluster.js';
import { KINDS } from '../../src/cluster/frames.js';
import { addFloats, joinNeighbours, shardsOf } from '../../src/cluster/shards.js';

let nextPort = 21_000 + (process.pid % 500) * 20;
const open: Cluster[] = [];
const cables: Cable[] = [];
afterEach(() => {
  vi.restoreAllMocks();
  for (const cluster of open.splice(0)) cluster.fail('the test is over');
  for (const cable of cables.splice(0)) cable.end();
});

/** What lies between a process and rank 0. Cut, it passes nothing on and closes nothing: the machine behind it has vanished. */
class Cable {
  private readonly sockets: Socket[] = [];
  private readonly server: Server;
  cut = false;

  constructor(from: number, to: number) {
    cables.push(this);
    this.server = createServer((near) => {
      const far = connect(to, '127.0.0.1');
      this.sockets.push(near, far);
      for (const [one, other] of [
        [near, far],
        [far, near],
      ] as const) {
        one.on('data', (bytes) => this.cut || other.write(bytes));
        one.on('close', () => this.cut || other.destroy());
        one.on('error', () => {});
      }
    }).listen(from);
  }

  end(): void {
    this.server.close();
    for (const socket of this.sockets) socket.destroy();
  }
}

interface Start {
  readonly ports?: readonly number[];
  readonly greeting?: (rank: number) => Record<string, string>;
  readonly silentSeconds?: number;
  readonly joinSeconds?: number;
  readonly quietSeconds?: number;
  readonly unknownSeconds?: number;
  readonly host?: string;
  /** On rank 0, where it differs. */
  readonly ownHost?: string;
  readonly localSize?: number;
  readonly say?: (text: string) => void;
  readonly ranks?: readonly number[];
  /** The ports that a rank dials, where they are not those on which rank 0 listens. */
  readonly dials?: Readonly<Record<number, readonly number[]>>;
}

function start(size: number, options: Start = {}) {
  const {
    ports: common = [nextPort++, nextPort++],
    dials,
    greeting,
    ranks,
    host,
    ownHost,
    ...limits
  } = options;
  const all = ranks ?? Array.from({ length: size }, (_, rank) => rank);
  return all.map(async (rank) => {
    const ports = dials?.[rank] ?? common;
    const place = {
      rank,
      size,
      localRank: rank,
      localSize: options.localSize ?? size,
      mpi: false,
      job: `job-${common[0]}`,
      host: (rank === 0 ? ownHost : undefined) ?? host ?? '127.0.0.1',
      ports,
    };
    const cluster = await joinCluster({ place, greeting: greeting?.(rank) ?? {}, ...limits });
    open.push(cluster);
    return cluster;
  });
}

/** What a resolver says, whatever that of this machine does. */
function lookupFails(code: 'ENOTFOUND' | 'EAI_AGAIN') {
  return vi.spyOn(dns, 'lookup').mockImplementation(((_: string, ...rest: unknown[]) => {
    const done = rest.at(-1) as (error: Error) => void;
    setImmediate(done, Object.assign(new Error(`getaddrinfo ${code}`), { code }));
  }) as never);
}

const values = (shard: number) =>
  Float32Array.from({ length: 50 }, (_, i) => Math.sin(shard * 97 + i) * 10 ** (i % 5));

describe('processes of a job', () => {
  it('have the same sum of shards, bit for bit, however many they are', async () => {
    const sums: Float32Array[] = [];
    for (const size of [1, 2, 3, 4]) {
      const clusters = await Promise.all(start(size));
      const found = await Promise.all(
        clusters.map((cluster) => {
          const { begin, end } = shardsOf(6, cluster.rank, size);
          const own = Array.from({ length: end - begin }, (_, i) => ({
            first: begin + i,
            count: 1,
            values: values(begin + i),
          }));
          return cluster.sum(Promise.resolve(joinNeighbours(own, addFloats)), 50);
        }),
      );
      for (const each of found) expect(each).toEqual(found[0]);
      sums.push(found[0]!);
      await Promise.all(clusters.map((cluster) => cluster.close()));
    }
    for (const sum of sums) expect(sum).toEqual(sums[0]);
  });

  it('gather bytes by rank, also of different lengths and longer than a frame', async () => {
    const clusters = await Promise.all(start(3));
    const own = [new Uint8Array(0), new Uint8Array(7).fill(1), new Uint8Array((1 << 24) + 5).fill(2)];
    const found = await Promise.all(clusters.map((cluster) => cluster.gather(own[cluster.rank]!)));
    for (const parts of found) {
      expect(parts.map(({ length }) => length)).toEqual(own.map(({ length }) => length));
      expect(parts.map((part) => part.at(-1))).toEqual([undefined, 1, 2]);
    }
    // Calls may overlap; their order is that of the calls.
    const twice = await Promise.all(
      clusters.flatMap((cluster) => [1, 2].map((call) => cluster.gather(Uint8Array.of(call, cluster.rank)))),
    );
    expect(twice[1]).toEqual([Uint8Array.of(2, 0), Uint8Array.of(2, 1), Uint8Array.of(2, 2)]);
    await Promise.all(clusters.map((cluster) => cluster.close()));
  });

  it('find each other where the first port is another job’s', async () => {
    const ports = [nextPort++, nextPort++, nextPort++];
    const stranger = createServer((socket) => socket.end('HTTP/1.1 400 Bad Request\r\n\r\n'));
    await new Promise<void>((resolve) => stranger.listen(ports[0], resolve));
    try {
      const clusters = await Promise.all(start(2, { ports }));
      expect(clusters.map(({ rank }) => rank)).toEqual([0, 1]);
    } finally {
      stranger.close();
    }
  });

  it('are not disturbed by strangers', async () => {
    const ports = [nextPort++];
    const [first] = start(2, { ports, ranks: [0] });
    for (const words of [
      'GET / HTTP/1.1\r\n\r\n',
      '\u0001\0\0\0\0\u00ff\u00ff\u00ff\u00ff',
      '\u0001\0\0\0\0\u0002\0\0\0{}',
    ])
      await new Promise<void>((resolve) => {
        const dial = () => {
          const socket = connect(ports[0]!, '127.0.0.1', () => socket.write(Buffer.from(words, 'latin1')));
          socket.once('close', (failed) => (failed ? setTimeout(dial, 20) : resolve()));
          socket.on('error', () => {});
          socket.resume();
        };
        dial();
      });
    const [second] = start(2, { ports, ranks: [1] });
    const both = await Promise.all([first!, second!]);
    const found = await Promise.all(both.map((cluster) => cluster.gather(Uint8Array.of(cluster.rank))));
    expect(found).toEqual([0, 1].map(() => [Uint8Array.of(0), Uint8Array.of(1)]));
  });

  it('refuse what differs, by its name, in all of them', async () => {
    const starts = start(3, {
      greeting: (rank) => ({ version: '1', configuration: rank === 2 ? 'b' : 'a' }),
    });
    const said = await Promise.allSettled(starts);
    const reasons = said.flatMap((each) =>
      each.status === 'rejected' ? [(each.reason as Error).message] : [],
    );
    expect(reasons.length).toBeGreaterThanOrEqual(2);
    for (const reason of reasons)
      expect(reason).toMatch(/^rank 2 on .* has another configuration than rank 0 \(b, not a\)/);
  });

  /** The hello of a process that is none of `start`'s. */
  function stranger(port: number, rank: number, size: number) {
    const words = { rank, size, job: `job-${port}`, host: 'elsewhere', pid: 1, greeting: {} };
    const bytes = Buffer.from(JSON.stringify(words));
    const head = Buffer.alloc(9);
    head.writeUInt8(KINDS.indexOf('hello'));
    head.writeUInt32LE(bytes.length, 5);
    return new Promise<{ readonly socket: Socket; readonly heard: string }>((resolve) => {
      const dial = () => {
        const socket = connect(port, '127.0.0.1', () => socket.write(Buffer.concat([head, bytes])));
        socket.on('data', (data) => resolve({ socket, heard: data.toString() }));
        socket.on('error', () => setTimeout(dial, 20));
      };
      dial();
    });
  }

  it('go on where somebody claims a rank of theirs, or none of theirs, and is told alone', async () => {
    const ports = [nextPort++];
    const all = await Promise.all(start(2, { ports }));
    const said = async (rank: number, size: number) => (await stranger(ports[0]!, rank, size)).heard;
    expect(await said(1, 2)).toMatch(
      /rank 1 on elsewhere \(process 1\) has the rank of the one on \S+ \(process \d+\): two jobs share/,
    );
    expect(await said(9, 2)).toContain('rank 9 on elsewhere (process 1) is none of 1 to 1');
    expect(await said(9, 10)).toContain('counts 10 processes, and rank 0 2');
    const found = await Promise.all(all.map((cluster) => cluster.gather(Uint8Array.of(cluster.rank))));
    expect(found[0]).toEqual([0, 1].map((rank) => Uint8Array.of(rank)));
  });

  it('go on waiting where somebody claims the rank of one that is there', async () => {
    const ports = [nextPort++];
    const [first] = start(3, { ports, ranks: [0], silentSeconds: 2, joinSeconds: 4 });
    const ended = expect(first).rejects.toThrow('1 of 3 processes have not come within 4 s: rank 2');
    // It is there once it hears signs of life.
    const { socket } = await stranger(ports[0]!, 1, 3);
    const beats = setInterval(
      () => socket.write(Buffer.from([KINDS.indexOf('beat'), 0, 0, 0, 0, 0, 0, 0, 0])),
      100,
    );
    expect((await stranger(ports[0]!, 1, 3)).heard).toContain('has the rank of the one on elsewhere');
    await ended;
    clearInterval(beats);
    socket.destroy();
  });

  it('of one machine are reached from it alone', async () => {
    const own = Object.values(networkInterfaces())
      .flat()
      .find((each) => each?.family === 'IPv4' && !each.internal)?.address;
    const ports = [nextPort++];
    await Promise.all(start(2, { ports }));
    const reached = (host: string) =>
      new Promise<boolean>((resolve) => {
        const socket = connect(ports[0]!, host, () => resolve(true));
        socket.on('error', () => resolve(false));
        socket.on('connect', () => socket.destroy());
      });
    expect(await reached('127.0.0.1')).toBe(true);
    // 127.0.0.2 is this machine too, by another address.
    for (const host of ['127.0.0.2', ...(own === undefined ? [] : [own])])
      expect(await reached(host)).toBe(false);
  });

  it('of several machines find rank 0 also where it is told that it is localhost', async () => {
    // 127.0.0.2 is another address of this machine, as its name's would be.
    const [first, second] = start(2, {
      ownHost: 'localhost',
      host: '127.0.0.2',
      localSize: 1,
      joinSeconds: 5,
    });
    expect((await Promise.all([first, second])).map((cluster) => cluster!.rank)).toEqual([0, 1]);
  });

  it('take no other port where not the port is what hinders', async () => {
    vi.spyOn(Server.prototype, 'listen').mockImplementation(function (this: Server) {
      queueMicrotask(() => this.emit('error', Object.assign(new Error('no'), { code: 'EACCES' })));
      return this;
    });
    const [first] = start(2, { ranks: [0], ports: [80, 81] });
    await expect(first).rejects.toThrow('rank 0 cannot listen on 127.0.0.1, port 80 (EACCES); set');
  });

  it('wait for a name server that does not answer as long as for rank 0', async () => {
    const lookup = lookupFails('EAI_AGAIN');
    const [follower] = start(2, { ranks: [1], host: 'rank-0.cluster', unknownSeconds: 0.2, joinSeconds: 1 });
    await expect(follower).rejects.toThrow('rank 0 of 2 does not answer on rank-0.cluster');
    expect(lookup).toHaveBeenCalled();
  });

  it('say who has not come', async () => {
    const [alone] = start(3, { ranks: [0], joinSeconds: 0.3 });
    await expect(alone).rejects.toThrow(
      '2 of 3 processes have not come within 0.3 s: rank 1, 2; where all run, set',
    );
    const [follower] = start(2, { ranks: [1], joinSeconds: 0.3 });
    await expect(follower).rejects.toThrow(/^rank 0 of 2 does not answer on 127.0.0.1/);
  });

  it('say early for whom they wait, and nothing where all are there', async () => {
    const said: string[] = [];
    const limits = { quietSeconds: 0.2, joinSeconds: 0.6, say: (text: string) => said.push(text) };
    const starts = [...start(3, { ranks: [0], ...limits }), ...start(2, { ranks: [1], ...limits })];
    expect((await Promise.allSettled(starts)).map(({ status }) => status)).toEqual(['rejected', 'rejected']);
    expect(said).toEqual([
      expect.stringMatching(/^rank 0 on \S+ waits for rank 1, 2; at most 0.6 s$/),
      expect.stringMatching(/^rank 1 on \S+ waits for rank 0 on 127.0.0.1, ports \d+ to \d+; at most 0.6 s$/),
    ]);
    await Promise.all(start(2, limits));
    await sleep(400);
    expect(said).toHaveLength(2);
  });

  it('end early where nobody knows the host of rank 0', async () => {
    lookupFails('ENOTFOUND');
    const said: string[] = [];
    const unknown = { host: 'rank-0.invalid', quietSeconds: 0.3, unknownSeconds: 0.8, joinSeconds: 60 };
    const [follower] = start(2, { ranks: [1], say: (text) => said.push(text), ...unknown });
    await expect(follower).rejects.toThrow(
      /^rank 1 on \S+ finds no address of rank-0.invalid, the host of rank 0, for 0.8 s; set MASTER_ADDR/,
    );
    expect(said).toEqual([
      expect.stringMatching(/waits for rank 0 on rank-0.invalid, a name of which no addr/),
    ]);
  });

  it('all hear the first reason when one fails, also while they wait', async () => {
    const clusters = await Promise.all(start(3));
    const waiting = [0, 2].map((rank) => clusters[rank]!.gather(new Uint8Array(3)));
    clusters[1]!.fail('out of memory');
    for (const each of waiting) await expect(each).rejects.toThrow(/^rank 1 on .*: out of memory$/);
    expect(clusters.map(({ lost }) => lost.aborted)).toEqual([true, true, true]);
    await expect(clusters[0]!.gather(new Uint8Array())).rejects.toThrow('out of memory');
  });

  it('name the one whose machine vanishes, which names rank 0', async () => {
    const [port, own] = [nextPort++, nextPort++];
    const cable = new Cable(own, port);
    const clusters = await Promise.all(start(3, { ports: [port], dials: { 2: [own] }, silentSeconds: 0.5 }));
    const waiting = clusters.map((cluster) => cluster.gather(Uint8Array.of(cluster.rank)));
    await Promise.all(waiting);
    cable.cut = true;
    const said = await Promise.allSettled(clusters.map((cluster) => cluster.gather(new Uint8Array(9))));
    const reasons = said.map((each) =>
      each.status === 'rejected' ? (each.reason as Error).message : 'none',
    );
    for (const reason of reasons.slice(0, 2))
      expect(reason).toMatch(/^rank 2 on .* \(process \d+\) has said nothing for 0.5 s$/);
    expect(reasons[2]).toBe('rank 0 on 127.0.0.1 has said nothing for 0.5 s');
  });

  it('wait for one that computes for longer than they would bear its silence', async () => {
    const clusters = await Promise.all(start(2, { silentSeconds: 0.3 }));
    const first = clusters[0]!.gather(Uint8Array.of(0));
    await sleep(1000);
    const second = clusters[1]!.gather(Uint8Array.of(1));
    expect(await first).toEqual(await second);
  });

  it('accuse nobody of a time in which they were stopped themselves', async () => {
    const clusters = await Promise.all(start(2, { silentSeconds: 0.3 }));
    // Both are in this process: it stops as a suspended job does.
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 700);
    await sleep(200);
    const found = await Promise.all(clusters.map((cluster) => cluster.gather(Uint8Array.of(cluster.rank))));
    expect(found[0]).toEqual(found[1]);
  });
});
