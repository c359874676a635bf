// What must be equal in the processes of a job, and what they share.
import { afterAll, expect, it } from 'vitest';
import type { Cluster } from '../../../src/cluster/cluster.js';
import type { Tensor } from '../../../src/runtime/tensor.js';
import { availableMemory, type MemoryPlan } from '../../../src/train/plan/memory-plan.js';
import { ownCores, sameParameters, sayBound, sharers } from '../../../src/train/processes/cluster-device.js';
import { fellows } from '../../cluster/fellows.js';
import { openTest } from '../../ops/devices.js';

const device = openTest();
afterAll(() => device.dispose());

it('parameters that one array cannot hold are compared in pieces', async () => {
  const size = 5_000_000;
  const compared = (changed: number) =>
    Promise.allSettled(
      fellows(2).map((cluster, rank) => {
        const view = (at: number, [length]: readonly [number]) => ({
          readFloats: async () =>
            Float32Array.from({ length }, (_, i) => (rank === 1 && at + i === changed ? 1 : 0)),
          dispose() {},
        });
        const readFloats = () => Promise.reject(new RangeError('Invalid typed array length'));
        return sameParameters(
          { policy: { values: { size, view, readFloats } as unknown as Tensor } },
          cluster,
        );
      }),
    );
  expect((await compared(-1)).map(({ status }) => status)).toEqual(['fulfilled', 'fulfilled']);
  expect((await compared(size - 1))[0]).toMatchObject({
    reason: { message: expect.stringContaining('the parameters of policy on rank 1 are no longer') },
  });
});

it('parameters that have come apart are told, by role and rank, before a checkpoint', async () => {
  const roles = (last: number) => ({
    policy: { values: device.tensor(Float32Array.of(1, 2, 3)) },
    reward: { values: device.tensor(Float32Array.of(4, last)) },
  });
  const compared = (...last: number[]) => {
    const all = fellows(last.length);
    return Promise.allSettled(all.map((cluster, rank) => sameParameters(roles(last[rank]!), cluster)));
  };
  for (const { status } of await compared(5, 5, 5)) expect(status).toBe('fulfilled');
  // Equal but for the sign of a zero.
  for (const each of await compared(0, 0, -0))
    expect(each).toMatchObject({
      status: 'rejected',
      reason: {
        message: expect.stringMatching(/^the parameters of reward on rank 2 are no longer those of rank 0/),
      },
    });
});

const coresOf = (place: object, masks: readonly string[], count: number, ofMachine = 64) => {
  const said: string[] = [];
  const usable = (which: string) => ({ which, count, ofMachine });
  const all = fellows(masks.length).map((cluster, rank) =>
    ownCores(
      Object.assign(cluster, { place: { mpi: false, ...place } as never }),
      usable(masks[rank] as string),
      (text) => said.push(text),
    ),
  );
  return Promise.all(all).then((cores) => ({ cores, said }));
};

it.each([
  ['of a machine that all use', { localSize: 2 }, ['a 0-7', 'a 0-7'], 8, 4],
  ['of each machine', { localSize: 2 }, ['a 0-7', 'a 0-7', 'b 0-7', 'b 0-7'], 8, 4],
  ['all where there is a process a machine', { localSize: 1 }, ['a 0-7', 'b 0-7'], 8, 8],
  ['all of those to which it is bound', { localSize: 2, mpi: true }, ['a 0-31', 'a 32-63'], 32, 32],
  ['of the socket to which two are bound', { localSize: 4 }, ['a 0-7', 'a 0-7', 'a 8-15', 'a 8-15'], 8, 4],
  ['of what SLURM gave to all', { localSize: 2, cores: 32 }, ['a 0-63', 'a 0-63'], 64, 16],
  ['where SLURM bound each to its own', { localSize: 2, cores: 64 }, ['a 0-31', 'a 32-63'], 32, 32],
  ['where more processes than cores were started', { localSize: 4, cores: 2 }, Array(4).fill('a 0-1'), 2, 1],
])('a process takes its share of the cores, %s', async (_, place, masks, count, own) => {
  expect(await coresOf(place, masks, count)).toEqual({ cores: masks.map(() => own), said: [] });
});

it('one that mpirun has bound to little of its machine says so, once', async () => {
  const { cores, said } = await coresOf({ localSize: 2, mpi: true }, ['a 0', 'a 1'], 1, 16);
  expect(cores).toEqual([1, 1]);
  expect(said).toEqual([
    // Without their number: of a container's machine more are counted than it may use.
    'each process computes on 1 core, to which mpirun has bound it; mpirun --bind-to none divides all that there are',
  ]);
});

it('a single process says so too', () => {
  const said: string[] = [];
  const say = (text: string) => void said.push(text);
  sayBound({ count: 9, ofMachine: 16 }, 1, say);
  expect(said).toEqual([]);
  sayBound({ count: 1, ofMachine: 16 }, 1, say);
  expect(said).toEqual([
    expect.stringMatching(/^each process computes on 1 core, to which mpirun has bound it/),
  ]);
});

it('processes of one machine plan for their share of its memory', () => {
  const cluster = { place: { localSize: 4 } } as Cluster;
  expect(sharers(device, undefined)).toBe(1);
  if (device.info().name !== 'cpu') return;
  expect(sharers(device, cluster)).toBe(4);
  const plan = { fixedBytes: 0 } as MemoryPlan;
  const [alone, shared] = [availableMemory(plan, device, 0.5), availableMemory(plan, device, 0.5, 4)];
  expect(alone / shared).toBeGreaterThan(3);
  expect(alone / shared).toBeLessThan(5);
});
