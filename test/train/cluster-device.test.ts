// What must be equal in the processes of a job, and what they share.
import { afterAll, expect, it } from 'vitest';
import type { Cluster } from '../../src/cluster/cluster.js';
import type { Tensor } from '../../src/runtime/tensor.js';
import { ownCores, sameParameters, sharers } from '../../src/train/cluster-device.js';
import { availableMemory, type MemoryPlan } from '../../src/train/memory-plan.js';
import { fellows } from '../cluster/fellows.js';
import { openTest } from '../ops/devices.js';

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

it.each([
  ['of a machine that all use', 8, undefined, 64, 8],
  ['of what SLURM gave to all, of a machine that it does not divide', 8, 32, 64, 4],
  ['of what SLURM gave to all, where each is bound to its own', 8, 64, 8, 8],
  ['where more processes than cores were started', 4, 2, 2, 1],
])('a process takes its share of the cores, %s', (_, localSize, cores, usable, own) => {
  expect(ownCores({ localSize, cores }, usable)).toBe(own);
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
