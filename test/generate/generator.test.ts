// A generator: how samples end, what it refuses, and that it frees its memory.
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { loadModel, type Model } from '../../src/api/model.js';
import { cacheShape } from '../../src/generate/cache/keys-values.js';
import { Generator } from '../../src/generate/generator.js';
import type { GeneratedToken, Sample } from '../../src/generate/rows/sample-row.js';
import { type Adapter, loadAdapter } from '../../src/models/adapter.js';
import { DisposedError } from '../../src/native/errors.js';
import { byteTokenizer } from '../../src/tokenizer/byte.js';
import { readStoredF32 } from '../../src/weights/checkpoint.js';
import { openSafetensors } from '../../src/weights/safetensors.js';
import { changedModel } from '../models/changed-model.js';
import { goldenDirectory } from '../models/golden.js';
import { openTest } from '../ops/devices.js';
import { random } from '../ops/numbers.js';

const device = openTest();
const directory = goldenDirectory('qwen2');
let model: Model;
beforeAll(async () => {
  model = await loadModel(device, directory, { dtype: 'f32' });
});
afterAll(() => device.dispose());

const greedy = { temperature: 0, ignoreEos: true } as const;
const tokensOf = (length: number, seed: number) =>
  Array.from(random(length, seed), (x) => Math.floor((x + 1) * 128));
const PROMPT = tokensOf(10, 1);

/** The only sample of the only prompt. */
const only = (samples: readonly (readonly Sample[])[]) => samples[0]?.[0] as Sample;

/** The greedy continuation of PROMPT. */
async function continuation(length: number): Promise<readonly number[]> {
  return only(await model.generate([PROMPT], { ...greedy, maxNewTokens: length })).tokens;
}

describe('a sample ends', () => {
  it('at maxNewTokens, or at the max length of the model', async () => {
    const samples = await model.generate([PROMPT, tokensOf(500, 2)], {
      ...greedy,
      maxNewTokens: 20,
    });
    const [short, long] = samples.flat() as [Sample, Sample];
    expect([short.tokens.length, short.finishReason]).toEqual([20, 'length']);
    expect([long.tokens.length, long.finishReason]).toEqual([12, 'length']);
  });

  it('at the end-of-text token, which is its last token', async () => {
    const tokens = await continuation(5);
    const eos = await loadModel(
      device,
      await changedModel('qwen2', { config: (config) => ({ ...config, eos_token_id: [tokens[3]] }) }),
      {
        dtype: 'f32',
      },
    );
    const first = tokens.indexOf(tokens[3] as number);
    const sample = only(await eos.generate([PROMPT], { temperature: 0 }));
    expect(sample).toMatchObject({
      tokens: tokens.slice(0, first + 1),
      finishReason: 'stop',
      stop: tokens[3],
    });
    const beyond = only(await eos.generate([PROMPT], { ...greedy, maxNewTokens: 5 }));
    expect(beyond).toMatchObject({ tokens, finishReason: 'length' });
    eos.dispose();
  });

  it('at a stop token, but not before minTokens other tokens', async () => {
    const tokens = await continuation(1);
    const stop = [tokens[0] as number];
    const sample = only(await model.generate([PROMPT], { ...greedy, stop }));
    expect(sample).toMatchObject({ tokens, finishReason: 'stop', stop: tokens[0] });
    const longer = only(
      await model.generate([PROMPT], {
        ...greedy,
        stop,
        minTokens: 4,
        maxNewTokens: 8,
      }),
    );
    expect(longer.tokens.slice(0, 4)).not.toContain(tokens[0]);
  });

  it('and draws no end-of-text token before minTokens others where it goes on after them, as vLLM', async () => {
    const [end] = (await continuation(1)) as [number];
    const request = { ...greedy, eosTokenIds: [end], ignoreEos: true, maxNewTokens: 8 };
    const free = only(await model.generate([PROMPT], request));
    expect(free.tokens[0]).toBe(end);
    const held = only(
      await model.generate([PROMPT], { ...request, minTokens: 4, logitBias: { [end]: 100 } }),
    );
    expect(held.tokens.map((token) => token === end)).toEqual([
      ...Array(4).fill(false),
      ...Array(4).fill(true),
    ]);
  });

  it('at a stop text, which is not in its text', async () => {
    const tokenizer = { tokenBytes: (id: number) => Buffer.from(`${id} `), isSpecial: () => false };
    const tokens = await continuation(8);
    const text = tokens.join(' ');
    const at = text.indexOf(' ', 5);
    const stop = text.slice(at - 1, at + 2);
    const sample = only(await model.generate([PROMPT], { ...greedy, stop: [stop], tokenizer }));
    const end = text.indexOf(stop);
    expect(sample).toMatchObject({ text: text.slice(0, end), finishReason: 'stop', stop });
    expect(tokens.slice(0, sample.tokens.length)).toEqual(sample.tokens);
    expect(`${sample.tokens.join(' ')} `).toContain(stop);
  });

  it('with one of its choices, drawn by its probability among them', async () => {
    const choices = [[7, 8], [7, 9, 10], [11]];
    const [samples] = await model.generate([PROMPT], { n: 200, choices, seed: 5 });
    const counts = new Map<string, number>();
    for (const { tokens, finishReason, samplingLogprobs } of samples!) {
      expect(finishReason).toBe('stop');
      counts.set(tokens.join(), (counts.get(tokens.join()) ?? 0) + 1);
      const probability = Math.exp(samplingLogprobs.reduce((sum, logprob) => sum + logprob, 0));
      expect(probability).toBeLessThanOrEqual(1 + 1e-6);
    }
    expect([...counts.keys()].every((key) => choices.some((choice) => choice.join() === key))).toBe(true);
    const of = (choice: number[]) => samples!.find(({ tokens }) => tokens.join() === choice.join());
    let total = 0;
    for (const choice of choices) {
      const sample = of(choice);
      if (!sample) continue;
      const probability = Math.exp(sample.samplingLogprobs.reduce((sum, logprob) => sum + logprob, 0));
      total += probability;
      const error = Math.sqrt((probability * (1 - probability)) / 200);
      expect(Math.abs(counts.get(choice.join())! / 200 - probability)).toBeLessThan(5 * error);
    }
    if (counts.size === 3) expect(total).toBeCloseTo(1, 5);
  });

  it('with the first token outside the choices if other tokens may be drawn', async () => {
    const free = only(await model.generate([PROMPT], { seed: 8, ignoreEos: true, maxNewTokens: 4 }));
    const [a, b, c] = free.tokens as [number, number, number];
    const draw = async (choices: readonly (readonly number[])[]) =>
      only(
        await model.generate([PROMPT], {
          seed: 8,
          ignoreEos: true,
          maxNewTokens: 4,
          choices,
          choicesOnly: false,
        }),
      );
    expect(await draw([[a, b, c + 1]])).toMatchObject({ tokens: [a, b, c], finishReason: 'stop' });
    expect(await draw([[a, b], [c]])).toMatchObject({ tokens: [a, b], finishReason: 'stop' });
    expect(await draw([[a + 1]])).toMatchObject({ tokens: [a], logprobs: free.logprobs.slice(0, 1) });
  });

  it('with a token that a bias forces, and never with one that it bans', async () => {
    const forced = only(await model.generate([PROMPT], { logitBias: { 42: 1000 }, maxNewTokens: 3 }));
    expect(forced.tokens).toEqual([42, 42, 42]);
    const [first] = await continuation(1);
    const other = only(
      await model.generate([PROMPT], {
        ...greedy,
        logitBias: { [first!]: Number.NEGATIVE_INFINITY },
        maxNewTokens: 3,
      }),
    );
    expect(other.tokens).not.toContain(first);
  });

  it('when its signal aborts, with the tokens so far', async () => {
    const controller = new AbortController();
    const generator = new Generator(model.decoder);
    const generation = generator.generate([PROMPT, [5]], {
      ...greedy,
      n: 2,
      signal: controller.signal,
      maxNewTokens: 400,
    });
    let seen = 0;
    for await (const { token } of generation) {
      if (token !== undefined && ++seen === 12) controller.abort();
    }
    const samples = (await generation.samples).flat();
    const whole = await continuation(400);
    for (const { finishReason, tokens, logprobs } of samples) {
      expect(finishReason).toBe('abort');
      expect(tokens.length).toBeGreaterThanOrEqual(3);
      expect(tokens.length).toBeLessThan(400);
      expect(logprobs).toHaveLength(tokens.length);
    }
    expect(samples[0]?.tokens).toEqual(whole.slice(0, samples[0]?.tokens.length));
    // An aborted request can continue.
    const resumed = await generator.resume(JSON.parse(JSON.stringify(generation.snapshot()))).samples;
    expect(resumed[0]?.[0]).toMatchObject({ tokens: whole, finishReason: 'length' });
    const early = await generator.generate([PROMPT], { signal: AbortSignal.abort() }).samples;
    expect(early).toMatchObject([[{ tokens: [], finishReason: 'abort' }]]);
    generator.dispose();
  });

  it('when its signal aborts between the chunks of its prompt', async () => {
    const controller = new AbortController();
    const generator = new Generator(model.decoder, { maxTokens: 16, maxRows: 1 });
    const forward = vi.spyOn(model.decoder, 'forwardAttending');
    const generation = generator.generate([tokensOf(400, 7)], { ...greedy, signal: controller.signal });
    // As a timer or a client that goes away: what the event loop brings.
    setImmediate(() => controller.abort());
    const sample = only(await generation.samples);
    expect(sample).toMatchObject({ tokens: [], finishReason: 'abort' });
    // On a GPU one more is queued.
    expect(forward.mock.calls.length).toBeLessThanOrEqual(device.info().name === 'cpu' ? 1 : 2);
    forward.mockRestore();
    generator.dispose();
  });

  it('with an error if the logits are NaN, without harm to other samples', async () => {
    const name = 'model.embed_tokens.weight';
    const file = openSafetensors(join(goldenDirectory('llama3'), 'model.safetensors'));
    const values = readStoredF32(file, name);
    const { shape } = file.tensors.get(name)!;
    file.close();
    const poison = 300;
    values.fill(Number.NaN, poison * shape[1]!, (poison + 1) * shape[1]!);
    const add = { [name]: { shape, values: [...values] } };
    const broken = await changedModel('llama3', { remove: [name], add });
    const other = await loadModel(device, broken, { dtype: 'f32' });
    const prompts = [PROMPT, [...PROMPT.slice(0, 5), poison, 6], tokensOf(70, 4)];
    const [good, bad, long] = await other.generate(prompts, { ...greedy, n: 2, maxNewTokens: 6 });
    expect(bad).toMatchObject([
      { tokens: [], finishReason: 'error' },
      { tokens: [], finishReason: 'error' },
    ]);
    const alone = await other.generate([PROMPT, tokensOf(70, 4)], { ...greedy, n: 2, maxNewTokens: 6 });
    expect([good, long]).toEqual(alone);
    other.dispose();
  });
});

describe('events', () => {
  it('are the tokens of each sample in order, with text and finish reason', async () => {
    const prompts = [PROMPT, [65]];
    const options = { n: 2, maxNewTokens: 9, seed: 3, tokenizer: byteTokenizerOf(320) };
    const samples = await model.generate(prompts, options);
    const events: GeneratedToken[] = [];
    for await (const event of model.stream(prompts, options)) events.push(event);
    samples.forEach((list, prompt) => {
      list.forEach(({ tokens, logprobs, text, finishReason }, sample) => {
        const own = events.filter((event) => event.prompt === prompt && event.sample === sample);
        expect(own.map(({ token }) => token)).toEqual(tokens);
        expect(Float32Array.from(own, ({ logprob }) => logprob!)).toEqual(logprobs);
        expect(own.map((event) => event.text).join('')).toBe(text);
        expect(own.map((event) => event.finishReason).filter(Boolean)).toEqual([finishReason]);
        expect(own.at(-1)?.finishReason).toBe(finishReason);
      });
    });
  });

  it('end the request when the loop over them is left', async () => {
    const generator = new Generator(model.decoder);
    const generation = generator.generate([PROMPT], { ...greedy, maxNewTokens: 400 });
    for await (const _ of generation) break;
    const sample = only(await generation.samples);
    expect(sample.finishReason).toBe('abort');
    expect(sample.tokens.length).toBeLessThan(10);
    generator.dispose();
  });

  it('are for one loop at a time', async () => {
    const generator = new Generator(model.decoder);
    const generation = generator.generate([PROMPT], { ...greedy, maxNewTokens: 4 });
    const [first, second] = [generation, generation].map((each) => each[Symbol.asyncIterator]());
    const tokens = first!.next();
    await expect(second!.next()).rejects.toThrow(/one loop at a time/);
    expect((await tokens).done).toBe(false);
    generation.abort();
    await generation.samples;
    generator.dispose();
  });
});

it('what a snapshot saves is what was asked, whatever becomes of the lists of the caller', async () => {
  const generator = new Generator(model.decoder);
  const stop = [300];
  const generation = generator.generate([PROMPT], { ...greedy, stop, maxNewTokens: 3 });
  stop[0] = 301;
  expect(generation.snapshot().options.stop).toEqual([300]);
  await generation.samples;
  generator.dispose();
});

it('a request of thousands of samples ends at once when it is aborted', async () => {
  const generator = new Generator(model.decoder, { maxRows: 4 });
  const generation = generator.generate([PROMPT], { n: 20_000, maxNewTokens: 40 });
  for await (const _ of generation) break;
  const samples = (await generation.samples).flat();
  expect(samples).toHaveLength(20_000);
  expect(samples.every(({ finishReason }) => finishReason === 'abort')).toBe(true);
  expect(generator.load).toMatchObject({ waiting: 0, running: 0, usedPages: 0 });
  generator.dispose();
});

/** A byte tokenizer for a model with more tokens. */
function byteTokenizerOf(vocabulary: number) {
  const bytes = byteTokenizer();
  return {
    tokenBytes: (id: number) => bytes.tokenBytes(Math.min(id, 255)),
    isSpecial: (id: number) => id >= vocabulary,
  };
}

describe('a generator refuses', () => {
  it('a sample that does not fit, and names the missing bytes', () => {
    const { pageBytes } = cacheShape(model.decoder);
    const generator = new Generator(model.decoder, { cacheBytes: 2.5 * pageBytes });
    expect(generator.cacheBytes).toBe(2 * pageBytes);
    expect(() => generator.generate([[1], tokensOf(100, 1)], { maxNewTokens: 200 })).toThrow(
      `generate: prompt 0 of 1 tokens with up to 200 new ones needs ${4 * pageBytes} bytes of keys and values, ` +
        `and the cache has ${2 * pageBytes}: ${2 * pageBytes} are missing; lower maxNewTokens or raise cacheBytes`,
    );
    expect(() => generator.generate([tokensOf(100, 1)], { maxNewTokens: 30 })).toThrow(
      'prompt 0 of 100 tokens',
    );
    generator.dispose();
  });

  it.each<[string, unknown, string]>([
    ['a prompt without tokens', [[1], []], 'generate: sequence 1 is empty; give at least one token'],
    ['a token beyond the vocabulary', [[320]], 'generate: sequence 0: token id 320 at index 0'],
    ['text', 'Hello', 'generate: expected an array of token sequences, found "Hello"'],
    [
      'a prompt that fills the model',
      [Array(512).fill(1)],
      'generate: prompt 0 has 512 tokens, as many as the model reads (max_position_embeddings): no token can follow; shorten it',
    ],
  ])('%s', async (_, prompts, sentence) => {
    await expect(model.generate(prompts as number[][])).rejects.toThrow(sentence);
    expect(await model.generate([[1]], { maxNewTokens: 1 })).toHaveLength(1);
  });

  it('invalid limits', () => {
    expect(() => new Generator(model.decoder, { maxRows: 0 })).toThrow(
      'generator: maxRows: expected a whole number above 0, found 0',
    );
    expect(() => new Generator(model.decoder, { cacheBytes: Number.NaN })).toThrow(
      'generator: cacheBytes: expected a whole number above 0, found NaN',
    );
  });

  it('everything after dispose, including running requests', async () => {
    const generator = new Generator(model.decoder);
    const running = generator.generate([PROMPT], { ...greedy, maxNewTokens: 400 });
    generator.dispose();
    generator.dispose();
    await expect(running.samples).rejects.toThrow(DisposedError);
    expect(() => generator.generate([[1]])).toThrow('the generator was used after it was disposed');
  });

  it('release while a request runs', async () => {
    const generator = new Generator(model.decoder);
    const running = generator.generate([PROMPT], { ...greedy, maxNewTokens: 4 });
    expect(() => generator.release()).toThrow(
      'generator: release while requests run; await or abort them first',
    );
    const before = await running.samples;
    generator.release();
    expect(await generator.generate([PROMPT], { ...greedy, maxNewTokens: 4 }).samples).toEqual(before);
    generator.dispose();
  });
});

it('no prompts give no samples', async () => {
  expect(await model.generate([])).toEqual([]);
});

it('keys and values of another adapter are never read', async () => {
  const generator = new Generator(model.decoder);
  const adapters = [1, 4].map((factor) => {
    const adapter = loadAdapter(device, model.decoder.config, join(directory, 'adapter'), {
      trainable: true,
    });
    return { adapter, factor };
  });
  for (const { adapter, factor } of adapters) {
    const values = await adapter.trainable!.values.readFloats();
    adapter.trainable!.write(values.map((value) => factor * value));
  }
  const prompts = [tokensOf(150, 1)];
  const generate = (adapter: Adapter | undefined, one: Generator) =>
    one.generate(prompts, { ...greedy, maxNewTokens: 5, role: { adapter } }).samples;
  const together = await Promise.all(
    [undefined, ...adapters.map((each) => each.adapter)].map((each) => generate(each, generator)),
  );
  const fresh = new Generator(model.decoder);
  for (const [i, each] of [...adapters.map(({ adapter }) => adapter), undefined].entries()) {
    fresh.release();
    expect(await generate(each, fresh)).toEqual(together[(i + 1) % 3]);
  }
  expect(together[1]).not.toEqual(together[2]);
  for (const owned of [generator, fresh, ...adapters.map((each) => each.adapter)]) owned.dispose();
});

it('keys and values from before a change of the weights are never read', async () => {
  const adapter = loadAdapter(device, model.decoder.config, join(directory, 'adapter'), { trainable: true });
  const role = { adapter };
  const prompts = [tokensOf(150, 1)];
  const options = { ...greedy, role, maxNewTokens: 5 };
  const generator = new Generator(model.decoder);
  const before = await generator.generate(prompts, options).samples;
  expect(await generator.generate(prompts, options).samples).toEqual(before);
  const values = await adapter.trainable!.values.readFloats();
  adapter.trainable!.write(values.map((value) => 3 * value));
  const after = await generator.generate(prompts, options).samples;
  const fresh = new Generator(model.decoder);
  expect(after).toEqual(await fresh.generate(prompts, options).samples);
  expect(after[0]![0]!.logprobs).not.toEqual(before[0]![0]!.logprobs);
  for (const owned of [generator, fresh, adapter]) owned.dispose();
});

it('memory stays constant over many ragged requests, and all of it is freed', async () => {
  await device.synchronize();
  const before = device.stats().liveBytes;
  const generator = new Generator(model.decoder, { maxRows: 16, maxTokens: 128, cacheBytes: 4_000_000 });
  let reserved = 0;
  for (let round = 0; round < 20; round++) {
    const prompts = Array.from({ length: 10 }, (_, i) =>
      tokensOf(1 + ((17 * round + 31 * i) % 90), 100 * round + i),
    );
    await generator.generate(prompts, { maxNewTokens: 1 + (round % 7), n: 1 + (round % 2), seed: round })
      .samples;
    await device.synchronize();
    const { liveBytes, reservedBytes } = device.stats();
    expect(liveBytes - before).toBeLessThanOrEqual(generator.cacheBytes + 1_000_000);
    if (round === 4) reserved = reservedBytes;
    if (round > 4) expect(reservedBytes).toBe(reserved);
  }
  generator.dispose();
  await device.synchronize();
  expect(device.stats().liveBytes).toBe(before);
});
