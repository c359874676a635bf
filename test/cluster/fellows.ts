/** Processes of a job that are all in this one. */
import { type Cluster, joinCluster } from '../../src/cluster/cluster.js';
import { Waiting } from '../../src/cluster/waiting.js';

/** Connected by sockets, of which rank 0 has `port`. */
export function overSockets(size: number, port: number): Promise<Cluster[]> {
  const joining = Array.from({ length: size }, (_, rank) =>
    joinCluster({
      place: {
        ...{ rank, size, localRank: rank, localSize: size, mpi: false },
        ...{ job: `fellows-${port}`, host: '127.0.0.1', ports: [port] },
      },
      greeting: {},
    }),
  );
  return Promise.all(joining);
}

/** What they gather alone. */
export function fellows(size: number): Cluster[] {
  const rounds: { parts: Uint8Array[]; count: number; done: () => void; all: Promise<void> }[] = [];
  const roundAt = (n: number) => {
    if (!rounds[n]) {
      let done = () => {};
      const all = new Promise<void>((resolve) => {
        done = resolve;
      });
      rounds[n] = { parts: [], count: 0, done, all };
    }
    return rounds[n] as (typeof rounds)[number];
  };
  return Array.from({ length: size }, (_, rank) => {
    let calls = 0;
    const fellow = {
      rank,
      size,
      waiting: new Waiting(),
      async collect(bytes: Uint8Array) {
        const parts = await fellow.gather(bytes);
        return rank === 0 ? parts : undefined;
      },
      async gather(bytes: Uint8Array) {
        const round = roundAt(calls++);
        round.parts[rank] = bytes;
        if (++round.count === size) round.done();
        await round.all;
        return round.parts;
      },
    };
    return fellow as unknown as Cluster;
  });
}
