// Rows of several adapters in one forward: each has the bits that it has when its adapter runs alone.
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, it, vi } from 'vitest';
import { loadModel, type Model } from '../../src/api/model.js';
import { Generator } from '../../src/generate/generator.js';
import type { Adapter } from '../../src/models/adapter.js';
import { Decoder } from '../../src/models/decoder.js';
import { goldenDirectory } from '../models/golden.js';
import { openTest } from '../ops/devices.js';
import { random } from '../ops/numbers.js';
import { changeAdapter, someAdapter } from './some-adapter.js';

const device = openTest();
afterAll(() => device.dispose());
afterEach(() => {
  vi.restoreAllMocks();
});

const tokensOf = (length: number, seed: number) =>
  Array.from(random(length, seed), (x) => Math.floor((x + 1) * 128));
const PROMPTS = [tokensOf(70, 1), tokensOf(9, 2)];
const OPTIONS = { n: 2, maxNewTokens: 12, temperature: 0.9, ignoreEos: true, promptLogprobs: true } as const;

describe.each([
  ['qwen2', 'bf16'],
  ['qwen3', 'f32'],
  ['opt', 'f32'],
] as const)('%s in %s', (name, dtype) => {
  let model: Model;
  let adapters: Adapter[];
  beforeAll(async () => {
    model = await loadModel(device, goldenDirectory(name), { dtype });
    const some = name === 'opt' ? ['q_proj', 'fc1'] : ['q_proj', 'down_proj'];
    adapters = [
      someAdapter(model, {}, 1),
      someAdapter(model, { r: 40, target_modules: some }, 2),
      // Models that tie their embedding to the head keep no copy of it.
      someAdapter(model, { r: 3, modules_to_save: name === 'qwen3' ? ['embed_tokens'] : [] }, 3),
    ];
  });
  afterAll(() => {
    for (const adapter of adapters) adapter.dispose();
    model.dispose();
  });

  const alone = async (adapter: Adapter | undefined) => {
    const generator = new Generator(model.decoder);
    const samples = await generator.generate(PROMPTS, { ...OPTIONS, role: { adapter } }).samples;
    generator.dispose();
    return samples;
  };
  const together = async (generator: Generator, all: readonly (Adapter | undefined)[]) =>
    Promise.all(all.map((adapter) => generator.generate(PROMPTS, { ...OPTIONS, role: { adapter } }).samples));

  it('a request fails whose adapter changes under it, and no other', async () => {
    const [first, second] = adapters as [Adapter, Adapter];
    const before = await first.trainable!.values.readFloats();
    const expected = await alone(second);
    const generator = new Generator(model.decoder, { maxTokens: 90 });
    const changed = generator.generate(PROMPTS, { ...OPTIONS, role: { adapter: first } });
    const kept = generator.generate(PROMPTS, { ...OPTIONS, role: { adapter: second } });
    const seen: number[] = [];
    await expect(
      (async () => {
        for await (const { token } of changed) {
          seen.push(token as number);
          if (seen.length === 6) changeAdapter(first, 9);
        }
      })(),
    ).rejects.toThrow('generate: the weights changed while samples were under way');
    expect(seen.length).toBeLessThan(PROMPTS.length * OPTIONS.n * OPTIONS.maxNewTokens);
    expect(await kept.samples).toEqual(expected);
    changeAdapter(first, 1, before);
    generator.dispose();
  });

  it('together they give what each gives alone', async () => {
    const all = [undefined, ...adapters];
    const expected = [];
    for (const adapter of all) expected.push(await alone(adapter));
    const generator = new Generator(model.decoder, { maxTokens: 90 });
    expect(await together(generator, all)).toEqual(expected);
    expect(expected[1]).not.toEqual(expected[0]);
    expect(expected[2]).not.toEqual(expected[0]);
    expect(expected[3]).not.toEqual(expected[0]);
    generator.dispose();
  });

  it('of one base they share every forward, and adapters are packed once', async () => {
    const forward = vi.spyOn(Decoder.prototype, 'forwardAttending');
    const generator = new Generator(model.decoder);
    await generator.generate(PROMPTS, OPTIONS).samples;
    const steps = forward.mock.calls.length;
    const packed = vi.spyOn(device.ops, 'stack_lora');
    generator.release();
    forward.mockClear();
    await together(generator, [undefined, ...adapters.slice(0, 2)]);
    expect(forward.mock.calls.length).toBeLessThanOrEqual(steps + 1);
    const pairs = adapters.slice(0, 2).reduce((sum, { plan }) => sum + plan.modules.length, 0);
    expect(packed).toHaveBeenCalledTimes(pairs);
    await together(generator, adapters.slice(0, 2));
    expect(packed).toHaveBeenCalledTimes(pairs);
    generator.dispose();
  });

  it('one that is full of NaN ends its own samples alone', async () => {
    const [first, second] = adapters as [Adapter, Adapter];
    const before = await second.trainable!.values.readFloats();
    const [base, own] = [await alone(undefined), await alone(first)];
    changeAdapter(second, 0, new Float32Array(before.length).fill(Number.NaN));
    const generator = new Generator(model.decoder);
    const [found, spoilt, plain] = await together(generator, [first, second, undefined]);
    expect([found, plain]).toEqual([own, base]);
    for (const sample of spoilt!.flat()) expect(sample).toMatchObject({ tokens: [], finishReason: 'error' });
    generator.dispose();
    changeAdapter(second, 0, before);
  });

  it('after a change of weights nothing that was packed or cached before is read', async () => {
    const [first] = adapters as [Adapter];
    const generator = new Generator(model.decoder);
    const [before] = await together(generator, [first]);
    changeAdapter(first, 77);
    const [after] = await together(generator, [first]);
    expect(after).toEqual(await alone(first));
    expect(after).not.toEqual(before);
    changeAdapter(first, 1);
    expect((await together(generator, [first]))[0]).toEqual(before);
    generator.dispose();
  });

  it('what they are packed into goes back with the pages', async () => {
    await device.synchronize();
    const { liveBytes } = device.stats();
    const generator = new Generator(model.decoder, { cacheBytes: 1 << 20 });
    await together(generator, adapters);
    await device.synchronize();
    expect(device.stats().liveBytes).toBeGreaterThan(liveBytes + generator.cacheBytes);
    generator.release();
    await device.synchronize();
    expect(device.stats().liveBytes).toBe(liveBytes);
    generator.dispose();
  });
});

it('refuses an adapter that ends in a classifier', async () => {
  const model = await loadModel(device, goldenDirectory('llama3'), {
    adapter: join(goldenDirectory('heads'), 'sequence-adapter'),
  });
  await expect(model.generate([[1, 2, 3]])).rejects.toThrow(
    'generate: the adapter is a classifier such as a reward network: it scores text and writes none',
  );
  model.dispose();
});
