// Samples of a server are those of the generator in process, whatever goes wrong on the way: none lost, none twice.
import { readdirSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { Generator } from '../../src/generate/generator.js';
import { generatorSource, type SampleSource, type SourceOptions } from '../../src/generate/sample-source.js';
import { createAdapter } from '../../src/models/adapter.js';
import { PassingFailure } from '../../src/remote/errors.js';
import { type RemoteSourceOptions, remoteSource } from '../../src/remote/remote-source.js';
import { retrying } from '../../src/remote/retry.js';
import { lora } from '../serve/lora.js';
import { metric, type TestServer, testServer, until } from '../serve/test-server.js';
import { temporaryDirectory } from '../weights/temporary-directory.js';
import { type Fault, faultyProxy } from './faulty-proxy.js';

const prompts = ['one', 'two and', 'three', 'four'].map((text) => [...Buffer.from(text)]);
const options: SourceOptions = {
  n: 3,
  maxNewTokens: 8,
  temperature: 0.8,
  topK: 50,
  seed: 11,
  iteration: 2,
  stop: ['q', 17],
};

const quick = {
  backoffSeconds: 0.001,
  idleSeconds: 0.5,
  connectSeconds: 1,
  server: 'steptrain',
  model: 'pupil',
} as const;

const remote = (url: string, more: Partial<RemoteSourceOptions> = {}) =>
  remoteSource({ url, ...quick, ...more });

function local({ model, served }: TestServer): SampleSource {
  const generator = new Generator(model.decoder, { cacheBytes: 4_000_000 });
  return generatorSource(generator, {
    tokenizer: served.tokenizer,
    eosTokenIds: model.endTokens(served.tokenizer),
  });
}

it('draws what the generator in process draws, bit for bit', async () => {
  const server = await testServer();
  const expected = await local(server).sample(prompts, options);
  const samples = await remote(server.url).sample(prompts, options);
  expect(
    samples?.map((list) =>
      list.map(({ tokens, logprobs, finishReason }) => ({ tokens, logprobs, finishReason })),
    ),
  ).toEqual(
    expected?.map((list) =>
      list.map(({ tokens, logprobs, finishReason }) => ({ tokens, logprobs, finishReason })),
    ),
  );
  expect(samples?.flat().some(({ finishReason }) => finishReason === 'stop')).toBe(true);
  expect(samples?.flat().some(({ finishReason }) => finishReason === 'length')).toBe(true);
});

describe('a server at fault', () => {
  const faults: readonly Fault[] = [
    'refused connection',
    '429',
    '500',
    'no answer',
    'cut stream',
    'silence',
    'slow bytes',
    'garbage',
    'duplicated event',
    'lost event',
    'error event',
    'no end',
    'other type',
  ];

  it.each(faults)('%s: nothing is lost, nothing comes twice', async (fault) => {
    const server = await testServer();
    const expected = await local(server).sample(prompts, options);
    // Every second request goes wrong.
    const proxy = await faultyProxy(server.url, (request) => (request % 2 === 0 ? fault : undefined));
    // A server on a busy machine is no silent one.
    const idleSeconds = fault === 'no answer' || fault === 'silence' ? 1 : 30;
    const samples = await remote(proxy.url, { concurrency: 2, idleSeconds }).sample(prompts, options);
    expect(samples?.map((list) => list.map(({ tokens }) => tokens))).toEqual(
      expected?.map((list) => list.map(({ tokens }) => tokens)),
    );
    expect(samples?.map((list) => list.map(({ logprobs }) => logprobs))).toEqual(
      expected?.map((list) => list.map(({ logprobs }) => logprobs)),
    );
    if (fault !== 'slow bytes') expect(proxy.asked.length).toBeGreaterThan(prompts.length);
  });

  it('gives up with a sentence after so many tries, and leaves nothing running', async () => {
    const server = await testServer();
    const proxy = await faultyProxy(server.url, () => '500');
    const source = remote(proxy.url, { attempts: 3, concurrency: 1 });
    await expect(source.sample(prompts, options)).rejects.toThrow(
      /^prompt 0 failed 3 times; the last time: 127\.0\.0\.1:\d+ answers 500: not now$/,
    );
    expect(proxy.asked.filter((path) => path !== '/v1/models')).toHaveLength(3);
  });

  it('is waited for while it is busy and says when to come back', async () => {
    const busy = (times: number) => async (attempt: number) => {
      if (attempt <= times) throw new PassingFailure('queue full', 1);
      return attempt;
    };
    const { signal } = new AbortController();
    const retry = { attempts: 2, backoffMs: 1, maxBackoffMs: 2 };
    expect(await retrying('it', { ...retry, patienceMs: 60_000 }, signal, busy(9))).toBe(10);
    await expect(retrying('it', retry, signal, busy(9))).rejects.toThrow(/^it failed 2 times/);
  });

  it('is not asked again for what no try changes', async () => {
    const server = await testServer();
    const proxy = await faultyProxy(server.url, () => undefined);
    await expect(
      remote(proxy.url, { model: 'other' }).sample([prompts[0] as number[]], options),
    ).rejects.toThrow(/answers 404: there is no model "other"; known are pupil$/);
    expect(proxy.asked.filter((path) => path !== '/v1/models')).toHaveLength(1);
    const changing = await faultyProxy(server.url, () => 'half a prompt');
    await expect(remote(changing.url).sample(prompts, options)).rejects.toThrow(
      /the server read 1 tokens of a prompt of \d/,
    );
  });
});

it('stops with its signal, at once and on the server too', async () => {
  const server = await testServer();
  const stop = new AbortController();
  const asked = remote(server.url).sample(prompts, {
    ...options,
    maxNewTokens: 400,
    stop: [],
    ignoreEos: true,
    signal: stop.signal,
  });
  await until(async () => (await metric(server.url, 'steptrain_rows{state="running"}')) > 0);
  stop.abort();
  expect(await asked).toBeUndefined();
  await until(async () => (await metric(server.url, 'steptrain_rows{state="running"}')) === 0);
  expect(server.errors).toEqual([]);
});

describe('publishing an adapter', () => {
  function trained(server: TestServer, seed: number) {
    const adapter = createAdapter(server.device, server.model.decoder.config, lora, { seed });
    // B is zero at first, and an adapter of zeros changes nothing.
    const values = adapter.trainable?.list ?? [];
    for (const { value } of values)
      value.write(Float32Array.from({ length: value.size }, (_, i) => Math.sin(i + seed)));
    return adapter;
  }

  it('gives later samples its weights, takes the earlier one back, and cleans up', async () => {
    const directory = temporaryDirectory();
    const server = await testServer({ adapterRoot: directory });
    const source = remote(server.url, { adapters: { directory } });
    const inProcess = local(server);
    const seen: unknown[] = [];
    for (const iteration of [1, 2]) {
      const adapter = trained(server, iteration);
      await source.publish(adapter, iteration);
      await inProcess.publish(adapter, iteration);
      const samples = await source.sample(prompts, options);
      const expected = await inProcess.sample(prompts, options);
      expect(samples?.map((list) => list.map(({ tokens, logprobs }) => [tokens, logprobs]))).toEqual(
        expected?.map((list) => list.map(({ tokens, logprobs }) => [tokens, logprobs])),
      );
      seen.push(samples?.[0]?.[0]?.logprobs[0]);
      const names = (await (await fetch(`${server.url}/v1/models`)).json()) as { data: { id: string }[] };
      expect(names.data.map(({ id }) => id)).toEqual([
        'pupil',
        expect.stringMatching(new RegExp(`^steptrain-[0-9a-f]+-${iteration}$`)),
      ]);
      expect(readdirSync(directory).length).toBe(1);
      adapter.dispose();
    }
    expect(seen[0]).not.toBe(seen[1]);
    await source.close();
    expect(readdirSync(directory)).toEqual([]);
  });

  it('counts an adapter as loaded where only the answer was lost', async () => {
    const directory = temporaryDirectory();
    const server = await testServer({ adapterRoot: directory });
    const proxy = await faultyProxy(server.url, (request, path) =>
      path === '/v1/load_lora_adapter' && request === 0 ? 'cut stream' : undefined,
    );
    const source = remote(proxy.url, { adapters: { directory } });
    await source.publish(trained(server, 1), 1);
    expect(await source.sample(prompts, options)).toHaveLength(4);
    await source.close();
  });

  it('is refused with a sentence where the server cannot', async () => {
    const server = await testServer();
    const directory = temporaryDirectory();
    const adapter = trained(server, 1);
    await expect(remote(server.url, { adapters: { directory } }).publish(adapter, 1)).rejects.toThrow(
      /^the server loads no adapters \(.* 403: this server loads no adapters; .*\); start steptrain serve with --adapter-root$/,
    );
    await expect(remote(server.url).publish(adapter, 1)).rejects.toThrow(
      /^the source has no adapters.directory/,
    );
  });
});

it('refuses a temperature beyond that of vLLM without asking it', async () => {
  const source = remote('http://127.0.0.1:9', { server: 'vllm' });
  await expect(source.sample(prompts, { ...options, temperature: 2.5 })).rejects.toThrow(
    /^temperature: expected at most 2, which is all that the server takes, found 2\.5$/,
  );
});
