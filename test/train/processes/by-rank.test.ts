// Tokens and waiting of each process of a job: the same numbers in all of them, lap by lap and in all.
import { expect, it } from 'vitest';
import { Waiting } from '../../../src/cluster/waiting.js';
import { rankMeter } from '../../../src/train/processes/by-rank.js';
import { fellows } from '../../cluster/fellows.js';

function meters(size: number) {
  const clock = { time: 0 };
  const now = () => clock.time;
  return {
    clock,
    each: fellows(size).map((fellow) => {
      const waiting = new Waiting(now);
      return { waiting, meter: rankMeter({ ...fellow, waiting }, now) };
    }),
  };
}

/** Waits from one moment to another. */
async function wait(waiting: Waiting, clock: { time: number }, from: number, to: number): Promise<void> {
  clock.time = from;
  await waiting.during(
    Promise.resolve().then(() => {
      clock.time = to;
    }),
  );
}

it('gives every process the rates and the waits of all, since the last lap', async () => {
  const { clock, each } = meters(2);
  const [a, b] = each as [(typeof each)[0], (typeof each)[0]];
  a.meter.add(100);
  a.meter.add(100);
  b.meter.add(50);
  await wait(b.waiting, clock, 1000, 2000);
  clock.time = 2000;
  const laps = await Promise.all(each.map(({ meter }) => meter.lap()));
  expect(laps[0]).toEqual({
    logged_seconds: 2,
    rank_0_tokens_per_second: 100,
    rank_0_waited_seconds: 0,
    rank_1_tokens_per_second: 25,
    rank_1_waited_seconds: 1,
  });
  expect(laps[1]).toEqual(laps[0]);
  expect(a.meter.shown).toEqual({ waited: '0 % to 50 %' });
  clock.time = 4000;
  const next = await Promise.all(each.map(({ meter }) => meter.lap()));
  expect(next[1]).toMatchObject({ rank_0_tokens_per_second: 0, rank_1_waited_seconds: 0 });
  expect(b.meter.summary()).toBe(
    'by rank: 50, 13 tokens/s; waited 0 %, 25 % of the time (for rank 0, which has most to do or is slowest)',
  );
});

it('says nothing before the first lap, blames nobody who is even, and names the ends of many', async () => {
  const { clock, each } = meters(9);
  expect(each[0]?.meter.summary()).toBeUndefined();
  for (const [rank, { meter }] of each.entries()) meter.add(100 + rank);
  clock.time = 1000;
  await Promise.all(each.map(({ meter }) => meter.lap()));
  expect(each[3]?.meter.summary()).toBe(
    'by rank: 100 (rank 0) to 108 (rank 8) tokens/s; waited 0 % (rank 0) to 0 % (rank 8) of the time',
  );
});
