// Work that processes do in one order, though each can do it at other times.
import { expect, it } from 'vitest';
import { Turns } from '../../../src/train/sums/turns.js';

const work = (name: string, done: string[]) => async () => {
  await new Promise((resolve) => setImmediate(resolve));
  done.push(name);
};

it('is done from the last layer to the first, then as turns were taken, whenever it is given', async () => {
  const done: string[] = [];
  const turns = new Turns();
  const [a, b, c, d] = [0, 2, -1, 2].map((layer) => turns.take(layer)) as [
    ReturnType<Turns['take']>,
    ReturnType<Turns['take']>,
    ReturnType<Turns['take']>,
    ReturnType<Turns['take']>,
  ];
  const all = [c(work('c', done)), a(work('a', done)), d(work('d', done))];
  await new Promise((resolve) => setTimeout(resolve, 5));
  expect(done).toEqual([]);
  await b(work('b', done));
  expect(done[0]).toBe('b');
  await Promise.all(all);
  expect(done).toEqual(['b', 'd', 'a', 'c']);
});

it('fails for all that comes after what has failed', async () => {
  const done: string[] = [];
  const turns = new Turns();
  const takers = [3, 2, 1].map((layer) => turns.take(layer));
  const [first, second, third] = takers.map((give, i) =>
    give(i === 1 ? () => Promise.reject(new Error('lost')) : work(String(i), done)),
  );
  await first;
  await expect(second).rejects.toThrow('lost');
  await expect(third).rejects.toThrow('lost');
  expect(done).toEqual(['0']);
});
