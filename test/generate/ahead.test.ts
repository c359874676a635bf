// Steps that are queued before the tokens of the step before are known.
import { afterAll, afterEach, beforeAll, describe, expect, it, vi } from 'vitest';
import { loadModel, type Model } from '../../src/api/model.js';
import { type GenerateOptions, Generator, type GeneratorOptions } from '../../src/generate/generator.js';
import { type Sample, SampleRow } from '../../src/generate/rows/sample-row.js';
import { Scheduler } from '../../src/generate/scheduler.js';
import { CapturedSteps } from '../../src/generate/step/captured.js';
import type { Adapter } from '../../src/models/adapter.js';
import { Decoder } from '../../src/models/decoder.js';
import { byteTokenizer } from '../../src/tokenizer/byte.js';
import { expectedOf, goldenDirectory } from '../models/golden.js';
import { openTest } from '../ops/devices.js';
import { random } from '../ops/numbers.js';
import { someAdapter } from './some-adapter.js';

const device = openTest(undefined, { threads: 1 });
afterAll(() => device.dispose());
afterEach(() => {
  vi.restoreAllMocks();
});

const tokensOf = (length: number, seed: number) =>
  Array.from(random(length, seed), (x) => Math.floor((x + 1) * 128));
const PROMPTS = [tokensOf(60, 1), tokensOf(5, 2), tokensOf(130, 3)];

let model: Model;
let adapters: Adapter[];
beforeAll(async () => {
  model = await loadModel(device, goldenDirectory('qwen3'), { dtype: 'bf16' });
  adapters = [someAdapter(model, {}, 1), someAdapter(model, { modules_to_save: ['embed_tokens'] }, 2)];
});

/** A prompt of each role, together. */
async function samplesOf(options: GenerateOptions, limits: GeneratorOptions = {}): Promise<Sample[][][]> {
  const generator = new Generator(model.decoder, limits);
  const all = [undefined, ...adapters].map((adapter) =>
    generator.generate(PROMPTS, { n: 3, maxNewTokens: 30, ...options, role: { adapter } }),
  );
  const samples = await Promise.all(all.map((generation) => generation.samples));
  expect(generator.load).toMatchObject({ running: 0, usedPages: 0 });
  generator.dispose();
  return samples;
}

/** The same bits on the CPU; on a GPU the same tokens, since a step of other rows may be another kernel's. */
function expectAlike(found: Sample[][][], expected: Sample[][][]) {
  if (device.info().name === 'cpu') {
    expect(found).toEqual(expected);
    return;
  }
  const plain = ({ tokens, text, finishReason }: Sample) => ({ tokens, text, finishReason });
  expect(found.flat(2).map(plain)).toEqual(expected.flat(2).map(plain));
  const logprobs = (samples: Sample[][][]) => samples.flat(2).flatMap((sample) => [...sample.logprobs]);
  const theirs = logprobs(expected);
  const apart = logprobs(found).map((value, i) => Math.abs(value - (theirs[i] as number)));
  // As far as two orders of rounding to bf16 are apart.
  const bound = 2 * expectedOf('qwen3').naive_bf16.logprob_max_abs_error;
  expect(Math.max(...apart)).toBeLessThan(bound);
}

const VARIANTS: readonly (readonly [string, GenerateOptions, GeneratorOptions])[] = [
  ['of one length', { ignoreEos: true }, {}],
  ['that end at many tokens', { stop: Array.from({ length: 30 }, (_, i) => 9 * i) }, {}],
  ['that end at texts', { stop: ['e', 'q', '1'], tokenizer: byteTokenizer(), temperature: 1.5 }, {}],
  ['that wait for each other', { eosTokenIds: [1, 2, 3, 4, 5, 6, 7, 8], minTokens: 3 }, { maxRows: 4 }],
  ['with few pages', { stop: [7, 8, 9, 10, 11] }, { cacheBytes: 110_000, maxRows: 7 }],
  ['with choices', { choices: [[1, 2, 3], [1, 5], [2]] }, {}],
  ['with log-probabilities', { topLogprobs: 2, promptLogprobs: true, ignoreEos: true }, { maxTokens: 70 }],
];

describe('samples are those of steps that wait for the tokens of the step before', () => {
  it.each(VARIANTS)('%s', async (_, options, limits) => {
    const steps = vi.spyOn(CapturedSteps.prototype, 'decode');
    const ahead = () => steps.mock.calls.filter(([, , before]) => before).length;
    const found = await samplesOf(options, limits);
    if (!options.choices) expect(ahead()).toBeGreaterThan(0);
    steps.mockClear();
    vi.spyOn(Scheduler.prototype, 'ahead').mockReturnValue(undefined);
    expectAlike(found, await samplesOf(options, limits));
    expect(steps).toHaveBeenCalled();
    expect(ahead()).toBe(0);
  });
});

it('a step is queued before what the step before it draws is read, and none after the last token', async () => {
  const order: string[] = [];
  // Asked first for every step, whether it is replayed or not.
  const { decode } = CapturedSteps.prototype;
  vi.spyOn(CapturedSteps.prototype, 'decode').mockImplementation(function (this: CapturedSteps, ...args) {
    order.push('step');
    return decode.apply(this, args);
  });
  const { accept } = SampleRow.prototype;
  vi.spyOn(SampleRow.prototype, 'accept').mockImplementation(function (this: SampleRow, ...args) {
    order.push('token');
    return accept.apply(this, args);
  });
  await model.generate([[1, 2, 3]], { maxNewTokens: 4, ignoreEos: true });
  expect(order).toEqual(['step', 'step', 'token', 'step', 'token', 'step', 'token', 'token']);
});

it('aborting while a step runs ahead keeps the tokens so far, and the next request is right', async () => {
  const options = { maxNewTokens: 20, ignoreEos: true, seed: 4 } as const;
  const expected = await model.generate([tokensOf(70, 5)], options);
  const generator = new Generator(model.decoder, { cacheBytes: 200_000 });
  for (let count = 1; count < 6; count++) {
    const generation = generator.generate([tokensOf(70, 5)], options);
    let seen = 0;
    for await (const _ of generation) if (++seen === count) break;
    const [[sample]] = (await generation.samples) as [[Sample]];
    expect(sample.finishReason).toBe('abort');
    expect(sample.tokens).toEqual(expected[0]?.[0]?.tokens.slice(0, sample.tokens.length));
    expect(sample.tokens.length).toBeGreaterThanOrEqual(count);
  }
  expect(await generator.generate([tokensOf(70, 5)], options).samples).toEqual(expected);
  generator.release();
  generator.dispose();
});

it.each([1, 2, 3])('a request whose step %i fails to be queued leaves no tensor behind', async (failing) => {
  await model.generate([[1]], { maxNewTokens: 2 });
  await device.synchronize();
  const { tensors } = device.stats();
  const { forwardAttending } = Decoder.prototype;
  let calls = 0;
  vi.spyOn(Decoder.prototype, 'forwardAttending').mockImplementation(function (this: Decoder, ...args) {
    if (++calls === failing) throw new Error('no memory');
    return forwardAttending.apply(this, args);
  });
  const generator = new Generator(model.decoder, { cacheBytes: 200_000 });
  const options = { maxNewTokens: 9, ignoreEos: true };
  await expect(generator.generate([[1, 2, 3]], options).samples).rejects.toThrow('no memory');
  // The next request runs.
  expect((await generator.generate([[1, 2, 3]], options).samples)[0]?.[0]?.tokens).toHaveLength(9);
  expect(generator.load).toMatchObject({ running: 0, usedPages: 0 });
  generator.dispose();
  await device.synchronize();
  expect(device.stats().tensors).toBe(tensors);
});
