import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { expect, it, onTestFinished } from 'vitest';
import { servedLogprobs } from '../../../src/methods/distill/served-teacher.js';

/** Texts of the student's tokens; 8 is a part of a character. */
const TEXTS: Readonly<Record<number, string | Uint8Array>> = { 5: ' cat', 8: Uint8Array.of(0xc3), 9: 'dog' };

/** A server that says -id/10 of every token, or what `answer` makes of the request. */
async function served(answer?: (ids: number[]) => unknown) {
  const asked: Record<string, unknown>[] = [];
  const server = createServer((request, response) => {
    const parts: Buffer[] = [];
    request.on('data', (part: Buffer) => parts.push(part));
    request.on('end', () => {
      const body = JSON.parse(Buffer.concat(parts).toString()) as { prompt: number[] };
      asked.push(body);
      const all = body.prompt.map((id, t) =>
        t === 0 ? null : { 7: { logprob: -9, rank: 1 }, [id]: { logprob: -id / 10, rank: 2 } },
      );
      const prompt_logprobs = answer ? answer(body.prompt) : all;
      response.setHeader('content-type', 'application/json');
      response.end(JSON.stringify({ choices: [{ index: 0, text: 'x', prompt_logprobs }] }));
    });
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  onTestFinished(() => void server.close());
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const tokenizer = { tokenBytes: (id: number) => Buffer.from((TEXTS[id] ?? '?') as string) };
  const teacher = { url, model: 'base', concurrency: 4, tokenizer };
  return {
    asked,
    ask: (rows: Parameters<typeof servedLogprobs>[1]) =>
      servedLogprobs(teacher, rows, AbortSignal.timeout(60_000)),
  };
}

it('asks for the log-probs of prompt and answer in token ids, and gives those of the answer', async () => {
  const { ask, asked } = await served();
  const found = await ask([
    { prompt: [3, 4], tokens: [5, 7] },
    { prompt: [3], tokens: [] },
    { prompt: [3], tokens: [9] },
  ]);
  expect(found).toEqual([[-0.5, -0.7], [], [-0.9]]);
  expect(asked.map(({ prompt }) => prompt)).toEqual(
    expect.arrayContaining([
      [3, 4, 5, 7],
      [3, 9],
    ]),
  );
  expect(asked[0]).toMatchObject({ model: 'base', prompt_logprobs: 0, max_tokens: 1 });
  expect(asked.length).toBe(2);
});

it.each([
  ['no list', () => undefined, /expected prompt_logprobs of 2 tokens, found none/],
  ['another number of tokens', () => [null], /expected prompt_logprobs of 2 tokens, found those of 1/],
  ['another token', () => [null, { 4: { logprob: -1 } }], /says no log-prob of token 9 at place 1/],
])('refuses a server that gives %s', async (_, answer, message) => {
  const { ask } = await served(answer);
  await expect(ask([{ prompt: [3], tokens: [9] }])).rejects.toThrow(message);
});

const saying = (id: number, decoded_token: string) => [null, { [id]: { logprob: -1, decoded_token } }];

it('refuses a server that says another text of a token', async () => {
  const { ask } = await served(() => saying(9, ' hat'));
  await expect(ask([{ prompt: [3], tokens: [9] }])).rejects.toThrow(
    /token 9 is " hat" to the server and "dog" to the student: they have other tokenizers/,
  );
});

it.each([
  [5, ' cat'],
  [5, 'cat'],
  [5, '▁cat'],
  [8, '�'],
  [8, ''],
])('takes token %d as %j', async (id, text) => {
  const { ask } = await served(() => saying(id, text));
  expect(await ask([{ prompt: [3], tokens: [id] }])).toEqual([[-1]]);
});
