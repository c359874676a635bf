// Solutions sampled in training: they depend on what they are asked for alone, and follow the role's weights.
import { afterAll, beforeAll, expect, it } from 'vitest';
import { loadModel, type Model } from '../../../src/api/model.js';
import { completeRunConfig } from '../../../src/methods/config.js';
import type { SftRunConfig } from '../../../src/methods/sft/config.js';
import type { Adapter } from '../../../src/models/adapter.js';
import { createAdapterOn } from '../../../src/models/adapter-on-base.js';
import { byteTokenizer } from '../../../src/tokenizer/byte.js';
import { loraConfig } from '../../../src/train/roles/lora-config.js';
import { localSolutions } from '../../../src/train/solutions/local-solutions.js';
import { goldenDirectory } from '../../models/golden.js';
import { openTest } from '../../ops/devices.js';

const device = openTest();
const tokenizer = byteTokenizer();
let model: Model;
let adapter: Adapter;

beforeAll(async () => {
  model = await loadModel(device, goldenDirectory('llama3'));
  const { lora } = completeRunConfig({
    method: 'sft',
    lora: { r: 4, lora_alpha: 8, lora_dropout: 0 },
    data: { source: 'arithmetic' },
  }) as SftRunConfig;
  if (lora === 'none') throw new Error('no lora');
  adapter = await createAdapterOn(model.decoder, loraConfig(lora, ''), { seed: 3 });
});
afterAll(() => device.dispose());

const SAMPLING = {
  num_generations: 3,
  max_new_tokens: 12,
  temperature: 0.8,
  top_p: 1,
  top_k: 0,
  min_p: 0,
  stop: [],
  max_rows: 4,
};
const PROMPTS = [65, 90, 120].map((byte, id) => ({ id, ids: [byte, byte + 1, byte + 2] }));

const sampler = (settings: object = {}) =>
  localSolutions({
    decoder: model.decoder,
    role: { adapter },
    tokenizer,
    sampling: { ...SAMPLING, ...settings },
    seed: 7,
  });

it('gives each prompt its samples, the same however prompts are divided into calls', async () => {
  const together = await sampler().sample(PROMPTS, { iteration: 1 });
  expect(together?.map((list) => list.length)).toEqual([3, 3, 3]);
  const alone = await sampler({ max_rows: 1 }).sample(PROMPTS.slice(1, 2), { iteration: 1 });
  expect(alone?.[0]).toEqual(together?.[1]);
  const [first] = together?.[0] ?? [];
  expect(first?.logprobs.length).toBe(first?.tokens.length);
  expect(first?.logprobs.every((logprob) => logprob < 0)).toBe(true);
  expect(['stop', 'length']).toContain(first?.finishReason);
});

it('draws other samples in another round, and from other weights', async () => {
  const drawn = async (iteration: number) => (await sampler().sample(PROMPTS, { iteration }))?.flat();
  const before = await drawn(1);
  expect(await drawn(2)).not.toEqual(before);
  const { trainable } = adapter;
  const values = (await trainable?.values.readFloats()) as Float32Array;
  trainable?.write(values.map((value, i) => value + 0.5 * Math.sin(i)));
  expect(await drawn(1)).not.toEqual(before);
  trainable?.write(values);
  expect(await drawn(1)).toEqual(before);
});

it('ends at the signal without a sample', async () => {
  const abort = new AbortController();
  const running = sampler({ max_new_tokens: 60 }).sample(PROMPTS, { iteration: 1, signal: abort.signal });
  setImmediate(() => abort.abort());
  expect(await running).toBeUndefined();
  expect(await sampler().sample(PROMPTS, { iteration: 1, signal: abort.signal })).toBeUndefined();
});
