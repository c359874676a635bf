// How long a process has waited: overlapping waits once, failed ones too, and those that go on.
import { expect, it } from 'vitest';
import { Waiting } from '../../src/cluster/waiting.js';

it('counts waits that overlap once, those that fail, and the one under way', async () => {
  let time = 0;
  const waiting = new Waiting(() => time);
  const ends: ((error?: Error) => void)[] = [];
  const wait = () =>
    waiting.during(
      new Promise<void>((resolve, reject) => {
        ends.push((error) => (error ? reject(error) : resolve()));
      }),
    );
  const first = wait();
  time = 1000;
  const second = wait();
  time = 3000;
  expect(waiting.seconds).toBe(3);
  ends[0]?.();
  await first;
  time = 4000;
  ends[1]?.(new Error('lost'));
  await expect(second).rejects.toThrow('lost');
  time = 9000;
  expect(waiting.seconds).toBe(4);
  const third = wait();
  time = 9500;
  ends[2]?.();
  await third;
  expect(waiting.seconds).toBe(4.5);
});
