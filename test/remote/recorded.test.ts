// Answers of a real vLLM (0.32 on a CPU, SmolLM2-135M-Instruct in f32), as `npm run test:clients -- --record` keeps them: what is asked
// is what it was asked then, and the samples are the tokens that it drew.
import { readFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { expect, it } from 'vitest';
import { createAdapter } from '../../src/models/adapter.js';
import { remoteSource } from '../../src/remote/remote-source.js';
import { lora } from '../serve/lora.js';
import { testServer } from '../serve/test-server.js';
import { temporaryDirectory } from '../weights/temporary-directory.js';

interface Exchange {
  readonly path: string;
  readonly body: { readonly prompt: readonly number[]; readonly n: number };
  readonly answer: string;
}

const recorded = (name: string) =>
  JSON.parse(readFileSync(new URL(`recorded/${name}.json`, import.meta.url), 'utf8')) as unknown;

const [greedy, sampled] = recorded('vllm-0.32') as [Exchange, Exchange];

/** By sample, what the events of an answer say. */
function drawn({ answer, body }: Exchange) {
  const samples = Array.from({ length: body.n }, () => ({
    tokens: [] as number[],
    logprobs: [] as number[],
    finishReason: '',
  }));
  for (const line of answer.split('\n').filter((each) => each.startsWith('data: {'))) {
    const event = JSON.parse(line.slice(6)) as {
      choices: readonly {
        index: number;
        token_ids: number[] | null;
        logprobs: { token_logprobs: number[] } | null;
        finish_reason: string | null;
      }[];
    };
    for (const choice of event.choices) {
      const sample = samples[choice.index] as (typeof samples)[number];
      sample.tokens.push(...(choice.token_ids ?? []));
      sample.logprobs.push(...(choice.logprobs?.token_logprobs ?? []));
      sample.finishReason = choice.finish_reason ?? sample.finishReason;
    }
  }
  return samples;
}

it.each([
  ['greedy', greedy, { n: 1, maxNewTokens: 16, temperature: 0, seed: 1 }],
  [
    'four samples of a prompt',
    sampled,
    { n: 4, maxNewTokens: 12, temperature: 0.9, topP: 0.95, topK: 40, minP: 0.01, seed: 7, stop: ['.'] },
  ],
])('%s', async (_, exchange, options) => {
  const asked: unknown[] = [];
  const server = createServer(async (request, response) => {
    if (request.method === 'GET') return void response.writeHead(404).end();
    let text = '';
    for await (const chunk of request) text += chunk;
    asked.push([request.url, JSON.parse(text)]);
    response.writeHead(200, { 'content-type': 'text/event-stream' }).end(exchange.answer);
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const source = remoteSource({ url, server: 'vllm', model: 'smollm2', attempts: 1 });
  const samples = await source.sample([exchange.body.prompt], options);
  await source.close();
  server.close().closeAllConnections();
  expect(asked).toEqual([[exchange.path, exchange.body]]);
  expect(
    samples?.[0]?.map(({ tokens, logprobs, finishReason }) => ({
      tokens,
      logprobs: [...logprobs],
      finishReason,
    })),
  ).toEqual(
    drawn(exchange).map((sample) => ({ ...sample, logprobs: [...Float32Array.from(sample.logprobs)] })),
  );
  expect(samples?.[0]?.every(({ tokens }) => tokens.length > 0)).toBe(true);
});

it('an adapter that is published, replaced and taken away', async () => {
  const exchanges = recorded('vllm-0.32-adapters') as (Partial<Exchange> & {
    readonly method: string;
    readonly path: string;
    readonly answer: string;
  })[];
  const folder = temporaryDirectory();
  /** Names of a source, and its folder, as they were when it was recorded. */
  const asThen = (text: string) =>
    text.replaceAll(/steptrain-[0-9a-f]{12}/g, 'steptrain-0134d2decc03').replaceAll(folder, 'adapters');
  const asked: unknown[] = [];
  const server = createServer(async (request, response) => {
    let text = '';
    for await (const chunk of request) text += chunk;
    asked.push([request.method, request.url, text === '' ? undefined : JSON.parse(asThen(text))]);
    const { answer } = exchanges[asked.length - 1] as (typeof exchanges)[number];
    response.writeHead(200, { 'content-type': 'text/event-stream' }).end(answer);
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const { model } = await testServer();
  const adapter = createAdapter(model.decoder.device, model.decoder.config, lora, { seed: 1 });
  const adapters = { directory: folder };
  const source = remoteSource({ url, server: 'vllm', model: 'smollm2', adapters, attempts: 1 });
  const options = { n: 1, maxNewTokens: 16, temperature: 0, seed: 1 };
  const drawings = exchanges.filter(({ path }) => path === '/v1/completions') as Exchange[];
  for (const [iteration, drawing] of drawings.entries()) {
    await source.publish(adapter, iteration);
    const samples = await source.sample([drawing.body.prompt], options);
    expect(samples?.[0]?.[0]?.tokens).toEqual(drawn(drawing)[0]?.tokens);
  }
  await source.close();
  server.close().closeAllConnections();
  expect(asked).toEqual(exchanges.map(({ method, path, body }) => [method, path, body]));
});
