// Groups divided among processes: the same list in all, each group computed once, a stop agreed.
import { expect, it } from 'vitest';
import type { Device } from '../../src/runtime/device.js';
import { shareWork } from '../../src/runtime/processes.js';
import { overGroups } from '../../src/sequences/divided.js';
import { fellows } from '../cluster/fellows.js';

const groups = (count: number) => Array.from({ length: count }, (_, i) => [i, i + 100]);

/** A device for each process. */
function devices(size: number, settle: (call: number) => void = () => {}): Device[] {
  return fellows(size).map((cluster) => {
    const device = {} as Device;
    let calls = 0;
    shareWork(device, {
      cluster,
      add() {},
      settle: async () => {
        // A settlement is an exchange: the others wait.
        await cluster.gather(new Uint8Array());
        settle(calls++);
      },
    });
    return device;
  });
}

it.each([
  [0, 2],
  [1, 2],
  [7, 2],
  [23, 3],
])('%i groups over %i processes give what one would give, each computed once', async (count, size) => {
  const computed: number[] = [];
  const compute = async (group: readonly number[]) => {
    computed.push(group[0] as number);
    return { sum: group.reduce((sum, item) => sum + item, 0) };
  };
  const alone = await overGroups({} as Device, groups(count), compute);
  computed.length = 0;
  const seen: number[][] = [];
  const all = await Promise.all(
    devices(size).map((device, rank) => {
      seen[rank] = [];
      return overGroups(device, groups(count), compute, {
        onGroup: (_, [first]) => seen[rank]!.push(first as number),
      });
    }),
  );
  for (const found of all) expect(found).toEqual(alone);
  for (const each of seen) expect(each).toEqual(groups(count).map(([first]) => first));
  expect(computed.sort((a, b) => a - b)).toEqual(groups(count).map(([first]) => first));
});

it('a stop that was agreed ends all at the same group', async () => {
  const stop = new AbortController();
  const done: number[] = [];
  const found = await Promise.all(
    devices(2, (call) => call === 1 && stop.abort()).map((device, rank) => {
      done[rank] = 0;
      return overGroups(device, groups(40), async () => 1, {
        signal: stop.signal,
        onGroup: () => done[rank]!++,
      });
    }),
  );
  expect(found).toEqual([undefined, undefined]);
  expect(done).toEqual([8, 8]);
});
