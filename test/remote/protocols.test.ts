// What vLLM and SGLang are asked, and how their answers are read; by stand-ins that write what those servers document.
import { readdirSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { afterAll, afterEach, describe, expect, it } from 'vitest';
import { readModelConfig } from '../../src/architectures/table.js';
import type { SourceOptions } from '../../src/generate/sample-source.js';
import { createAdapter, loadAdapter } from '../../src/models/adapter.js';
import { type RemoteSourceOptions, remoteSource } from '../../src/remote/remote-source.js';
import { PEFT_DEFAULTS } from '../../src/weights/adapter-config.js';
import { openSafetensors } from '../../src/weights/safetensors.js';
import { openTest } from '../ops/devices.js';
import { goldenPath } from '../weights/golden.js';
import { temporaryDirectory } from '../weights/temporary-directory.js';

const closing: (() => void)[] = [];
afterEach(() => {
  for (const close of closing.splice(0)) close();
});

interface Asked {
  readonly path: string;
  readonly key: string | undefined;
  readonly body: {
    readonly seed: number;
    readonly prompt_ids?: unknown;
    readonly sampling_params: { readonly sampling_seed: number };
  };
}

/** A server that answers every request with these events; it goes with the test. */
async function standIn(answer: (asked: Asked) => readonly (object | string)[]) {
  const asked: Asked[] = [];
  const server = createServer(async (request, response) => {
    // It does not say how long its model reads.
    if (request.method === 'GET') return void response.writeHead(404).end();
    let text = '';
    for await (const chunk of request) text += chunk;
    const one = { path: request.url as string, key: request.headers.authorization, body: JSON.parse(text) };
    asked.push(one);
    response.writeHead(200, { 'content-type': 'text/event-stream' });
    const events = [...answer(one), '[DONE]'];
    response.end(
      events
        .map((event) => `data: ${typeof event === 'string' ? event : JSON.stringify(event)}\n\n`)
        .join(''),
    );
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  closing.push(() => server.close().closeAllConnections());
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, asked };
}

const options: SourceOptions = {
  n: 2,
  maxNewTokens: 4,
  temperature: 0.7,
  topP: 0.9,
  seed: 3,
  stop: ['END', 9],
};

const sample = (
  url: string,
  server: RemoteSourceOptions['server'],
  more: Partial<RemoteSourceOptions> = {},
  prompts = [[1, 2, 3]],
) =>
  remoteSource({
    url,
    server,
    model: server === 'sglang' ? '' : 'qwen',
    attempts: 2,
    backoffSeconds: 0.001,
    ...more,
  }).sample(prompts, options);

const usage = { choices: [], usage: { prompt_tokens: 3, completion_tokens: 4 } };
const named = (...ids: readonly number[]) => ({
  tokens: ids.map((id) => `token_id:${id}`),
  token_logprobs: ids.map((id) => -id / 8),
});

const drawn = [
  { tokens: [5, 6], logprobs: Float32Array.of(-0.625, -0.75), finishReason: 'length' },
  { tokens: [7, 9], logprobs: Float32Array.of(-0.875, -1.125), finishReason: 'stop', stop: 9 },
];

describe('vLLM', () => {
  const ids = (index: number, list: readonly number[], rest: object = {}) => ({
    choices: [{ index, text: 'x', token_ids: list, logprobs: named(...list), finish_reason: null, ...rest }],
  });

  it('gives tokens by return_token_ids', async () => {
    const { url, asked } = await standIn(() => [
      ids(0, [5]),
      ids(1, [7]),
      ids(0, [6], { finish_reason: 'length' }),
      ids(1, [9], { finish_reason: 'stop', stop_reason: 9 }),
      usage,
    ]);
    process.env.SOME_KEY = 'secret';
    expect(await sample(url, 'vllm', { keyEnv: 'SOME_KEY' })).toEqual([drawn]);
    delete process.env.SOME_KEY;
    expect(asked[0]).toMatchObject({
      path: '/v1/completions',
      key: 'Bearer secret',
      body: {
        ...{
          model: 'qwen',
          prompt: [1, 2, 3],
          n: 2,
          max_tokens: 4,
          temperature: 0.7,
          top_p: 0.9,
          logprobs: 0,
        },
        ...{ stop: ['END'], stop_token_ids: [9], stream: true, return_token_ids: true },
        ...{ return_tokens_as_token_ids: true, stream_options: { include_usage: true } },
      },
    });
    expect(asked[0]?.body.prompt_ids).toBeUndefined();
  });

  it('gives them by their names where it is older', async () => {
    const old = (index: number, list: readonly number[], reason: string | null = null) => ({
      choices: [
        {
          index,
          text: 'x',
          logprobs: named(...list),
          finish_reason: reason,
          stop_reason: reason === 'stop' ? 9 : null,
        },
      ],
    });
    const { url } = await standIn(() => [old(0, [5, 6], 'length'), old(1, [7]), old(1, [9], 'stop'), usage]);
    expect(await sample(url, 'vllm')).toEqual([drawn]);
  });

  it('is refused where it gives text alone, or no log-probabilities', async () => {
    const text = await standIn(() => [
      { choices: [{ index: 0, text: 'x', logprobs: null, finish_reason: null }] },
    ]);
    await expect(sample(text.url, 'vllm')).rejects.toThrow(
      /^the server gives text without token ids, and text made into tokens/,
    );
    const none = await standIn(() => [ids(0, [5], { logprobs: null })]);
    await expect(sample(none.url, 'vllm')).rejects.toThrow(/^the server gives no log-probabilities/);
    expect([text.asked.length, none.asked.length]).toEqual([1, 1]);
  });

  it.each([
    ['tokens after the end of their sample', [ids(0, [5], { finish_reason: 'length' }), ids(0, [6])]],
    ['a choice that was not asked for', [ids(2, [5])]],
    ['a stream without usage', [ids(0, [5], { finish_reason: 'length' })]],
    ['two lists of token ids that differ', [ids(0, [5], { logprobs: named(6) })]],
    ['log-probabilities that do not fit', [ids(0, [5], { logprobs: { token_logprobs: [null] } })]],
    ['the server ended a sample with abort', [ids(0, [5], { finish_reason: 'abort' })]],
    ['a sample without its end', [ids(0, [5, 6, 7, 8], { finish_reason: 'length' }), usage]],
    [
      'a sample before its first token',
      [ids(0, [5, 6, 7, 8], { finish_reason: 'length' }), ids(1, [], { finish_reason: 'stop' }), usage],
    ],
    [
      '3 tokens where the server counts 4',
      [ids(0, [5, 6], { finish_reason: 'length' }), ids(1, [5], { finish_reason: 'stop' }), usage],
    ],
    ['what is no JSON', ['{"choices": [']],
    ['an event that is no object', ['[]']],
  ] as const)('is asked again for %s', async (says, events) => {
    const { url, asked } = await standIn(() => events);
    await expect(sample(url, 'vllm')).rejects.toThrow(says);
    expect(asked.length).toBe(2);
  });

  it('is given another seed for every round, prompt and seed', async () => {
    const seeds = new Set<number>();
    const { url } = await standIn(({ body }) => {
      seeds.add(body.seed);
      return [ids(0, [5, 6], { finish_reason: 'length' }), ids(1, [7, 9], { finish_reason: 'stop' }), usage];
    });
    const source = remoteSource({ url, server: 'vllm', model: 'qwen' });
    for (const seed of [1, 2])
      for (const iteration of [0, 1])
        await source.sample(
          [
            [1, 2, 3],
            [1, 2, 3],
          ],
          { ...options, seed, iteration },
        );
    expect(seeds.size).toBe(8);
    expect([...seeds].every((seed) => Number.isInteger(seed) && seed >= 0 && seed < 2 ** 31)).toBe(true);
  });
});

describe('SGLang', () => {
  const event = (list: readonly number[], count: number, reason: object | null = null) => ({
    text: 'x',
    output_ids: list,
    meta_info: {
      ...{ prompt_tokens: 3, completion_tokens: count, finish_reason: reason },
      output_token_logprobs: list.map((id) => [-id / 8, id, null]),
    },
  });
  const length = { type: 'length', length: 2 };
  const stop = { type: 'stop', matched: 9 };

  it.each([
    ['whole', [event([7], 1), event([7, 9], 2, stop)], [event([5], 1), event([5, 6], 2, length)]],
    ['in parts', [event([7], 1), event([9], 2, stop)], [event([5], 1), event([6], 2, length)]],
  ])('is asked for each sample by itself, and its events are read %s', async (_, second, first) => {
    const seeds: number[] = [];
    const { url, asked } = await standIn(({ body }) => {
      seeds.push(body.sampling_params.sampling_seed);
      return seeds.length === 1 ? first : second;
    });
    expect(await sample(url, 'sglang', { concurrency: 1 })).toEqual([drawn]);
    expect(asked.map(({ path }) => path)).toEqual(['/generate', '/generate']);
    expect(asked[0]?.body).toMatchObject({
      input_ids: [1, 2, 3],
      sampling_params: {
        n: 1,
        max_new_tokens: 4,
        temperature: 0.7,
        top_p: 0.9,
        top_k: -1,
        min_p: 0,
        repetition_penalty: 1,
        presence_penalty: 0,
        frequency_penalty: 0,
        stop: ['END'],
        stop_token_ids: [9],
      },
      return_logprob: true,
      stream: true,
    });
    expect(new Set(seeds).size).toBe(2);
  });

  it('is asked again where events were lost or came twice, and refused where it has no tokens', async () => {
    for (const events of [
      [event([5], 1), event([5], 1), event([9], 3, stop)],
      [event([5], 1), event([6], 3, length)],
      [event([5], 1)],
      [event([5], 1, { type: 'abort' })],
    ]) {
      const { url, asked } = await standIn(() => events);
      await expect(sample(url, 'sglang', { concurrency: 1 })).rejects.toThrow(/failed 2 times/);
      expect(asked.length).toBe(2);
    }
    const { url } = await standIn(() => [
      { text: 'x', meta_info: { prompt_tokens: 3, completion_tokens: 1 } },
    ]);
    await expect(sample(url, 'sglang')).rejects.toThrow(/^the server gives no tokens with log-probabilities/);
  });
});

it('refuses options that cannot be', () => {
  const make = (more: object) => () =>
    remoteSource({
      url: 'http://127.0.0.1:1',
      server: 'vllm',
      model: 'qwen',
      ...more,
    } as RemoteSourceOptions);
  expect(make({ url: 'localhost:8000' })).toThrow(/^remoteSource: url: expected an address/);
  expect(make({ url: 'file:///etc' })).toThrow(/^remoteSource: url/);
  expect(make({ server: 'toString' })).toThrow(
    'remoteSource: server: expected steptrain, vllm, sglang, found "toString"',
  );
  expect(make({ model: '' })).toThrow(/^remoteSource: model: expected the name/);
  expect(make({ concurrency: 0 })).toThrow(/^remoteSource: concurrency/);
  expect(make({ idleSeconds: Number.NaN })).toThrow(/^remoteSource: idleSeconds/);
});

describe('adapters on experts', () => {
  const device = openTest();
  afterAll(() => device.dispose());
  const path = goldenPath('variants/qwen3-moe');
  const model = readModelConfig(path);

  it.each(['vllm', 'sglang'] as const)(
    'reach %s with a pair for each expert, or not at all',
    async (server) => {
      const directory = temporaryDirectory();
      const { url, asked } = await standIn(() => []);
      const named = { url, server, model: server === 'sglang' ? '' : 'qwen', attempts: 1 };
      const source = remoteSource({ ...named, adapters: { directory } });
      const targetModules = { kind: 'allLinear' } as const;
      const config = { ...PEFT_DEFAULTS, targetModules, loraDropout: 0.05 };
      const adapter = createAdapter(device, model, config, { seed: 1 });
      await source.publish(adapter, 1);
      const [name] = readdirSync(directory) as [string];
      expect(asked.at(-1)?.body).toEqual({ lora_name: name, lora_path: join(directory, name) });
      const file = openSafetensors(join(directory, name, 'adapter_model.safetensors'));
      file.close();
      const { modules } = adapter.plan;
      expect([...file.tensors.keys()].sort()).toEqual(
        modules.flatMap((each) => [each.aName, each.bName]).sort(),
      );
      const again = loadAdapter(device, model, join(directory, name));
      expect(again.plan.modules).toEqual(modules);

      const joint = loadAdapter(device, model, join(path, 'adapter-joint'));
      await expect(source.publish(joint, 2)).rejects.toThrow(
        /: target_parameters: PEFT would misread the pairs of experts/,
      );
      for (const owned of [adapter, again, joint]) owned.dispose();
      await source.close();
    },
  );
});
