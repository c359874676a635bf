// A server in a job: it is asked once, and all processes have its answers, whether they take them whole or one by one.
import { expect, it, vi } from 'vitest';
import type { SampleSource } from '../../src/generate/sample-source.js';
import type { Adapter } from '../../src/models/adapter.js';
import { askedOnce } from '../../src/remote/asked-once.js';
import { fellows } from '../cluster/fellows.js';

it('rank 0 publishes and asks; the others hear of every sample that they have not', async () => {
  const sampled = (tokens: number[]) => ({
    tokens,
    logprobs: Float32Array.from(tokens, () => Math.random()),
    finishReason: 'stop' as const,
  });
  const server = {
    sample: vi.fn<SampleSource['sample']>(async (prompts, { n = 1, skip, onSample }) =>
      prompts.map((_, prompt) =>
        Array.from({ length: n }, (_, i) => {
          const ended = sampled([prompt, i]);
          if (!skip?.(prompt, i)) onSample?.(prompt, i, ended);
          return ended;
        }),
      ),
    ),
    publish: vi.fn(async () => {}),
    begin: vi.fn(async () => {}),
    close: vi.fn(async () => {}),
  };
  const heard: string[][] = [];
  const found = await Promise.all(
    fellows(3).map(async (cluster, rank) => {
      const source = askedOnce(server, cluster);
      heard[rank] = [];
      await source.publish({} as Adapter, 1);
      await source.begin?.({} as Adapter, [[3]], { iteration: 2 });
      return source.sample([[1], [2]], {
        n: 2,
        skip: (prompt, i) => prompt === 1 && i === 0,
        onSample: (prompt, i, { tokens }) => void heard[rank]!.push(`${prompt} ${i} ${tokens}`),
      });
    }),
  );
  expect(server.sample).toHaveBeenCalledTimes(1);
  expect(server.publish).toHaveBeenCalledTimes(1);
  expect(server.begin).toHaveBeenCalledTimes(1);
  for (const each of found) expect(each).toEqual(found[0]);
  for (const each of heard) expect(each).toEqual(['0 0 0,0', '0 1 0,1', '1 1 1,1']);
});
