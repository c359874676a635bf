import { expect, test } from 'vitest';
import { ending } from '../../src/native/ending.js';

test.each(['close', 'dispose', 'finish'])('using ends a thing by its own %s, also after an error', (end) => {
  const calls: string[] = [];
  const open = () => ({ [end]: () => calls.push('ended') }) as unknown as { close(): void };
  const work = () => {
    using _thing = ending(open());
    calls.push('work');
    throw new Error('the work failed');
  };
  expect(work).toThrow('the work failed');
  expect(calls).toEqual(['work', 'ended']);
});

test('await using waits for an end that takes time, and the thing stays the same object', async () => {
  const calls: string[] = [];
  const file = {
    async close() {
      await new Promise((resolve) => setTimeout(resolve, 1));
      calls.push('closed');
    },
  };
  const work = async () => {
    await using same = ending(file);
    expect(same).toBe(file);
    return 7;
  };
  expect(await work()).toBe(7);
  expect(calls).toEqual(['closed']);
});
