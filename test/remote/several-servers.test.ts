// Several servers draw what one draws, share the work, and go on without one that is lost; none samples from an older adapter.
import { readdirSync } from 'node:fs';
import { createServer } from 'node:http';
import { expect, it } from 'vitest';
import { Generator } from '../../src/generate/generator.js';
import { generatorSource, type SampleSource, type SourceOptions } from '../../src/generate/sample-source.js';
import { createAdapter } from '../../src/models/adapter.js';
import { RemoteError } from '../../src/remote/errors.js';
import { remoteSource } from '../../src/remote/remote-source.js';
import { spread } from '../../src/remote/spread.js';
import { lora } from '../serve/lora.js';
import { type TestServer, testServer } from '../serve/test-server.js';
import { temporaryDirectory } from '../weights/temporary-directory.js';
import { type Fault, faultyProxy } from './faulty-proxy.js';

const prompts = Array.from({ length: 9 }, (_, i) => [...Buffer.from(`prompt ${i}`)]);
const options: SourceOptions = { n: 2, maxNewTokens: 8, temperature: 0.8, seed: 11, iteration: 2 };

/** Two servers of the same model, each behind a proxy that says what goes wrong. */
async function pair(faultOf: (server: number, request: number, path: string) => Fault | undefined) {
  const directory = temporaryDirectory();
  const servers = [
    await testServer({ adapterRoot: directory }),
    await testServer({ adapterRoot: directory }),
  ] as const;
  const proxies = [
    await faultyProxy(servers[0].url, (request, path) => faultOf(0, request, path)),
    await faultyProxy(servers[1].url, (request, path) => faultOf(1, request, path)),
  ] as const;
  const told: string[] = [];
  const source = remoteSource({
    url: proxies.map(({ url }) => url),
    server: 'steptrain',
    model: 'pupil',
    concurrency: 2,
    attempts: 2,
    backoffSeconds: 0.001,
    connectSeconds: 1,
    idleSeconds: 30,
    adapters: { directory },
    tell: (sentence) => told.push(sentence),
  });
  return { source, servers, proxies, told, directory };
}

function local({ model, served }: TestServer): SampleSource {
  const generator = new Generator(model.decoder, { cacheBytes: 4_000_000 });
  return generatorSource(generator, {
    tokenizer: served.tokenizer,
    eosTokenIds: model.endTokens(served.tokenizer),
  });
}

function trained({ device, model }: TestServer, seed: number) {
  const adapter = createAdapter(device, model.decoder.config, lora, { seed });
  for (const { value } of adapter.trainable?.list ?? [])
    value.write(Float32Array.from({ length: value.size }, (_, i) => Math.sin(i + seed)));
  return adapter;
}

const drawn = (samples: Awaited<ReturnType<SampleSource['sample']>>) =>
  samples?.map((list) => list.map(({ tokens, logprobs }) => [tokens, [...logprobs]]));
const asks = (path: string) => path === '/v1/completions';

it('draw what the generator in process draws, and all of them do', async () => {
  const { source, servers, proxies, told } = await pair(() => undefined);
  const heard: string[] = [];
  const samples = await source.sample(prompts, {
    ...options,
    onSample: (prompt, sample) => heard.push(`${prompt}/${sample}`),
  });
  expect(drawn(samples)).toEqual(drawn(await local(servers[0]).sample(prompts, options)));
  expect(heard.length).toBe(18);
  expect(new Set(heard).size).toBe(18);
  for (const { asked } of proxies) expect(asked.filter(asks).length).toBeGreaterThan(1);
  const prompts1 = samples?.filter(([first]) => first?.server === 1).length;
  const prompts2 = samples?.filter((list) => list.every(({ server }) => server === 2)).length;
  expect([prompts1, prompts2]).toEqual(proxies.map(({ asked }) => asked.filter(asks).length));
  expect(told).toEqual([]);
});

it('go on without one that is lost, with the same samples, and take it back with the adapter', async () => {
  let isLost = false;
  const { source, servers, proxies, told, directory } = await pair((server) =>
    server === 1 && isLost ? 'refused connection' : undefined,
  );
  const inProcess = local(servers[0]);
  for (const iteration of [1, 2, 3]) {
    const adapter = trained(servers[0], iteration);
    // Lost between the publication and the samples of the first round, back after the second.
    await source.publish(adapter, iteration);
    await inProcess.publish(adapter, iteration);
    isLost = iteration < 3;
    const heard: string[] = [];
    const before = proxies[1].asked.filter(asks).length;
    const samples = await source.sample(prompts, {
      ...options,
      iteration,
      onSample: (prompt, sample) => heard.push(`${prompt}/${sample}`),
    });
    expect(drawn(samples)).toEqual(drawn(await inProcess.sample(prompts, { ...options, iteration })));
    expect(new Set(heard).size).toBe(18);
    expect(heard.length).toBe(18);
    expect(readdirSync(directory).length).toBe(1);
    if (iteration === 3) expect(proxies[1].asked.filter(asks).length).toBeGreaterThan(before);
    adapter.dispose();
  }
  expect(told).toEqual([
    expect.stringMatching(
      /^http:\S+ is left out until it answers again \(prompt \d failed 2 times; the last time: .*\); 1 of 2 servers go on$/,
    ),
    expect.stringMatching(/^http:\S+ is back: 2 of 2 servers go on$/),
  ]);
  await source.close();
  expect(readdirSync(directory)).toEqual([]);
});

it('draw rounds ahead, each from the adapter as it was when the round was begun', async () => {
  const { source, servers, proxies, directory } = await pair(() => undefined);
  const inProcess = local(servers[0]);
  const adapter = trained(servers[0], 1);
  const expected: unknown[] = [];
  for (const iteration of [1, 2, 3]) {
    const { trainable } = adapter;
    trainable?.write(Float32Array.from({ length: trainable.size }, (_, i) => Math.sin(i + 7 * iteration)));
    await source.begin?.(adapter, prompts, { ...options, iteration });
    await inProcess.publish(adapter, iteration);
    expected.push(drawn(await inProcess.sample(prompts, { ...options, iteration })));
  }
  for (const iteration of [1, 2, 3]) {
    const heard: string[] = [];
    const samples = await source.sample(prompts, {
      ...options,
      iteration,
      onSample: (prompt, sample) => heard.push(`${prompt}/${sample}`),
    });
    expect(drawn(samples)).toEqual(expected[iteration - 1]);
    expect(new Set(heard).size).toBe(18);
  }
  expect(new Set(expected.map((each) => JSON.stringify(each))).size).toBe(3);
  for (const { asked } of proxies) expect(asked.filter(asks).length).toBeGreaterThan(3);
  expect(readdirSync(directory).length).toBe(1);
  await source.begin?.(adapter, prompts, { ...options, iteration: 4 });
  await source.close();
  expect(readdirSync(directory)).toEqual([]);
  adapter.dispose();
});

it('leave no adapter of rounds that were begun and not drawn', async () => {
  const { source, servers, directory } = await pair((_, __, path) => (asks(path) ? 'silence' : undefined));
  const adapter = trained(servers[0], 1);
  for (const iteration of [1, 2, 3]) await source.begin?.(adapter, prompts, { ...options, iteration });
  expect(readdirSync(directory).length).toBe(3);
  await source.close();
  expect(readdirSync(directory)).toEqual([]);
  adapter.dispose();
});

it('say of a round that was drawn ahead what went wrong when it is asked for, and draw the next', async () => {
  let isLost = false;
  const { source, servers } = await pair((_, __, path) => (isLost && asks(path) ? '500' : undefined));
  const adapter = trained(servers[0], 1);
  isLost = true;
  await source.begin?.(adapter, prompts, { ...options, iteration: 1 });
  const lost = source.sample(prompts, { ...options, iteration: 1 });
  await expect(lost).rejects.toThrow(/failed 2 times; .* answers 500: not now$/);
  isLost = false;
  await source.begin?.(adapter, prompts, { ...options, iteration: 2 });
  expect(await source.sample(prompts, { ...options, iteration: 2 })).toHaveLength(9);
  const stopped = new AbortController();
  await source.begin?.(adapter, prompts, { ...options, iteration: 3 });
  stopped.abort();
  expect(await source.sample(prompts, { ...options, iteration: 3, signal: stopped.signal })).toBe(undefined);
  await source.close();
  adapter.dispose();
});

it('fail with the sentence of the last one where none is left', async () => {
  const { source, told } = await pair((_, __, path) => (asks(path) ? '500' : undefined));
  await expect(source.sample(prompts, options)).rejects.toThrow(/failed 2 times; .* answers 500: not now$/);
  expect(told.length).toBe(1);
});

it('leave one out that says it has loaded an adapter and has not, and fail where it is the only one', async () => {
  const directory = temporaryDirectory();
  const honest = await testServer({ adapterRoot: directory });
  const other = await testServer({ adapterRoot: directory });
  // In front of it something that answers in its place.
  const front = createServer((request, response) => {
    const body: Buffer[] = [];
    request.on('data', (part: Buffer) => body.push(part));
    request.on('end', async () => {
      if (request.url === '/v1/load_lora_adapter') {
        response.end('loaded');
        return;
      }
      const init = request.method === 'POST' ? { method: 'POST', body: Buffer.concat(body) } : {};
      const headers = { 'content-type': 'application/json' };
      const answer = await fetch(other.url + request.url, { ...init, headers });
      response.writeHead(answer.status, { 'content-type': answer.headers.get('content-type') ?? '' });
      response.end(Buffer.from(await answer.arrayBuffer()));
    });
  });
  await new Promise<void>((resolve) => front.listen(0, '127.0.0.1', resolve));
  const { port } = front.address() as { port: number };
  const told: string[] = [];
  const source = remoteSource({
    url: [honest.url, `http://127.0.0.1:${port}`],
    server: 'steptrain',
    model: 'pupil',
    attempts: 1,
    adapters: { directory },
    tell: (sentence) => told.push(sentence),
  });
  const adapter = trained(honest, 1);
  await source.publish(adapter, 1);
  const inProcess = local(honest);
  await inProcess.publish(adapter, 1);
  expect(drawn(await source.sample(prompts, options))).toEqual(
    drawn(await inProcess.sample(prompts, options)),
  );
  expect(told).toEqual([expect.stringMatching(/answers 404: there is no model "steptrain-.*1 of 2 servers/)]);
  await source.close();
  const alone = remoteSource({
    ...{ url: `http://127.0.0.1:${port}`, server: 'steptrain', model: 'pupil', attempts: 1 },
    adapters: { directory },
  });
  await alone.publish(adapter, 1);
  await expect(alone.sample(prompts, options)).rejects.toThrow(/answers 404: there is no model "steptrain-/);
  await alone.close();
  front.closeAllConnections();
  front.close();
  adapter.dispose();
});

it('are refused where there is none, or one twice', () => {
  const of = (url: readonly string[]) => () => remoteSource({ url, server: 'steptrain', model: 'pupil' });
  expect(of([])).toThrow(/url: expected at least one address/);
  expect(of(['http://a', 'http://b', 'http://a'])).toThrow(/http:\/\/a is given twice/);
});

it('take the next item as they have room, and none is done twice when one of three is lost', async () => {
  const done: string[] = [];
  const items = Array.from({ length: 30 }, (_, i) => i);
  const work = async (server: string, item: number) => {
    await new Promise((resolve) => setTimeout(resolve, server === 'slow' ? 20 : 1));
    if (server === 'lost' && item > 3) throw new RemoteError('gone');
    done.push(`${server} ${item}`);
  };
  const left: string[] = [];
  const spreading = { atOnce: () => 2, leave: (server: string) => void left.push(server) };
  expect(await spread(['slow', 'fast', 'lost'], items, spreading, work)).toBe(true);
  expect(left).toEqual(['lost']);
  expect(done.map((each) => Number(each.split(' ')[1])).sort((a, b) => a - b)).toEqual(items);
  const of = (server: string) => done.filter((each) => each.startsWith(server)).length;
  expect(of('fast')).toBeGreaterThan(of('slow'));
  expect(of('slow')).toBeGreaterThan(0);
});
