// Steps that are recorded and replayed give the bits of those that are queued op by op.
import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, expect, it, vi } from 'vitest';
import { loadModel, type Model } from '../../../src/api/model.js';
import { type GenerateOptions, Generator } from '../../../src/generate/generator.js';
import { CapturedSteps } from '../../../src/generate/step/captured.js';
import type { Adapter } from '../../../src/models/adapter.js';
import type { Device } from '../../../src/runtime/device.js';
import { Graph } from '../../../src/runtime/graph.js';
import { goldenDirectory } from '../../models/golden.js';
import { openTest } from '../../ops/devices.js';
import { random } from '../../ops/numbers.js';
import { changeAdapter, someAdapter } from '../some-adapter.js';

const MANY_POSITIONS = 6000;
const tokensOf = (length: number, seed: number) =>
  Array.from(random(length, seed), (x) => Math.floor((x + 1) * 128));
const SHORT = [tokensOf(60, 1), tokensOf(5, 2), tokensOf(11, 3)];
/** Rows end one after the other, so that their number changes. */
const OPTIONS = {
  n: 2,
  maxNewTokens: 24,
  temperature: 0.9,
  topP: 0.9,
  stop: Array.from({ length: 12 }, (_, i) => 9 * i),
} as const;

let device: Device;
let model: Model;
let adapters: Adapter[];
beforeAll(async () => {
  device = openTest(undefined, { threads: 1 });
  const directory = mkdtempSync(join(tmpdir(), 'steptrain-'));
  cpSync(goldenDirectory('qwen3'), directory, { recursive: true });
  const config = join(directory, 'config.json');
  const fields = JSON.parse(readFileSync(config, 'utf8')) as object;
  writeFileSync(config, JSON.stringify({ ...fields, max_position_embeddings: MANY_POSITIONS }));
  model = await loadModel(device, directory, { dtype: 'bf16' });
  rmSync(directory, { recursive: true });
  adapters = [someAdapter(model, {}, 1), someAdapter(model, { modules_to_save: ['embed_tokens'] }, 2)];
});
afterAll(() => {
  for (const adapter of adapters) adapter.dispose();
  model.dispose();
  device.dispose();
});
afterEach(() => {
  vi.restoreAllMocks();
});

const withGenerator = async <T>(use: (generator: Generator) => Promise<T>): Promise<T> => {
  const generator = new Generator(model.decoder);
  try {
    return await use(generator);
  } finally {
    generator.dispose();
  }
};

/** Prompts of the base and of both adapters, together. */
const samplesOf = async (generator: Generator, options: GenerateOptions = OPTIONS, prompts = SHORT) =>
  Promise.all(
    [undefined, ...adapters].map(
      (adapter) => generator.generate(prompts, { ...options, role: { adapter } }).samples,
    ),
  );

/** What `run` gives without any recording. */
async function eager<T>(run: () => Promise<T>): Promise<T> {
  const mock = vi.spyOn(CapturedSteps.prototype, 'decode').mockReturnValue(undefined);
  const result = await run();
  mock.mockRestore();
  return result;
}

it.each<[string, GenerateOptions, number[][]]>([
  ['that end at many tokens', OPTIONS, SHORT],
  [
    'with alternatives and log-probs of the prompt',
    { ...OPTIONS, topLogprobs: 3, promptLogprobs: true },
    SHORT,
  ],
  ['greedy, with tokens that are ruled out at first', { ...OPTIONS, temperature: 0, minTokens: 4 }, SHORT],
  ['whose tables of pages grow', { ...OPTIONS, n: 1, ignoreEos: true, stop: [] }, [tokensOf(500, 4)]],
])('samples %s', async (_, options, prompts) => {
  const expected = await eager(() => withGenerator((one) => samplesOf(one, options, prompts)));
  const replayed = vi.spyOn(Graph.prototype, 'replay');
  expect(await withGenerator((one) => samplesOf(one, options, prompts))).toEqual(expected);
  expect(replayed.mock.calls.length).toBeGreaterThan(20);
});

it('recordings go on after the tables of rotations have grown', async () => {
  const expected = await eager(() => withGenerator((one) => samplesOf(one)));
  await withGenerator(async (generator) => {
    // Shapes are recorded when they come again, and cached prompts bring others than new ones do.
    for (const _ of [1, 2, 3]) await samplesOf(generator);
    const captured = vi.spyOn(device, 'capture');
    model.decoder.prepare(MANY_POSITIONS);
    const others = Array.from({ length: 16 }, () =>
      device.tensor(new Float32Array(2 ** 18).fill(Number.NaN)),
    );
    expect(await samplesOf(generator)).toEqual(expected);
    expect(captured.mock.calls.length).toBe(0);
    for (const other of others) other.dispose();
  });
});

it('recordings are made anew when adapters change, are forgotten, or memory was released', async () => {
  await withGenerator(async (generator) => {
    const before = await samplesOf(generator);
    const [first] = adapters as [Adapter];
    for (const change of [
      () => changeAdapter(first, 7),
      () => generator.forget(first),
      () => generator.release(),
    ]) {
      change();
      const expected = await eager(() => withGenerator((one) => samplesOf(one)));
      expect(await samplesOf(generator)).toEqual(expected);
      expect(expected[1]).not.toEqual(before[1]);
    }
  });
});

it('all recordings have one pool, and nothing is left after dispose', async () => {
  await device.synchronize();
  const { tensors } = device.stats();
  const pools = vi.spyOn(device, 'graphPool');
  const captured = vi.spyOn(device, 'capture');
  await withGenerator((generator) => samplesOf(generator));
  expect(pools).toHaveBeenCalledTimes(1);
  expect(captured.mock.calls.length).toBeGreaterThan(3);
  for (const [, pool] of captured.mock.calls) expect(pool).toBe(pools.mock.results[0]?.value);
  await device.synchronize();
  expect(device.stats().tensors).toBe(tensors);
});

it('follows a step of more than twice as many rows', async () => {
  const prompts = (count: number, seed: number) =>
    Array.from({ length: count }, (_, i) => tokensOf(5 + i, seed + i));
  const options = { temperature: 1, ignoreEos: true };
  const run = () =>
    withGenerator(async (generator) => {
      const long = () => generator.generate(prompts(6, 10), { ...options, maxNewTokens: 20 });
      const short = (maxNewTokens: number) =>
        generator.generate(prompts(9, 30), { ...options, maxNewTokens });
      // Six rows are recorded.
      await long().samples;
      // The last nine begin a step later, and end with the first.
      const together = [short(9), long(), short(8)];
      return Promise.all(together.map((generation) => generation.samples));
    });
  expect(await run()).toEqual(await eager(run));
});
