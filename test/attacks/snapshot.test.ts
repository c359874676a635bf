// External input of `Generator.resume` and `loadModel`: invalid snapshots and an invalid generation_config.json.
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { loadModel, type Model } from '../../src/api/model.js';
import { Generator } from '../../src/generate/generator.js';
import type { GenerationSnapshot } from '../../src/generate/snapshot.js';
import { changedModel } from '../models/changed-model.js';
import { goldenDirectory } from '../models/golden.js';
import { openTest } from '../ops/devices.js';

const device = openTest();
let model: Model;
let generator: Generator;
let good: GenerationSnapshot;
beforeAll(async () => {
  model = await loadModel(device, goldenDirectory('qwen2'));
  generator = new Generator(model.decoder);
  const generation = generator.generate([[1, 2, 3], [4]], { n: 2, maxNewTokens: 6 });
  for await (const { sample } of generation) if (sample === 1) break;
  await generation.samples;
  good = JSON.parse(JSON.stringify(generation.snapshot()));
});
afterAll(() => device.dispose());

describe('resume refuses', () => {
  const sampleWith = (change: object) => (snapshot: GenerationSnapshot) => ({
    ...snapshot,
    samples: [[{ ...snapshot.samples[0]![0], ...change }, snapshot.samples[0]![1]], snapshot.samples[1]],
  });

  it.each<[string, (snapshot: GenerationSnapshot) => unknown, string]>([
    ['nothing', () => null, 'resume: snapshot: expected an object, found null'],
    ['text', () => 'snapshot', 'resume: snapshot: expected an object, found "snapshot"'],
    ['no prompts', ({ prompts: _, ...rest }) => rest, 'resume: prompts: expected a list, found nothing'],
    [
      'no options',
      (snapshot) => ({ ...snapshot, options: null }),
      'resume: options: expected an object, found null',
    ],
    [
      'samples of other prompts',
      (snapshot) => ({ ...snapshot, samples: snapshot.samples.slice(1) }),
      'resume: samples: expected a list for each of the 2 prompts, found [[an object,an object]]',
    ],
    [
      'fewer samples than n',
      (snapshot) => ({ ...snapshot, samples: [[], snapshot.samples[1]] }),
      'resume: samples[0]: expected 2 samples, as options.n says, found []',
    ],
    [
      'a sample that is none',
      (s) => ({ ...s, samples: [[7, 7], s.samples[1]] }),
      'resume: samples[0][0]: expected an object, found 7',
    ],
    [
      'a token beyond the vocabulary',
      sampleWith({ tokens: [320] }),
      'resume: samples[0][0].tokens: expected token ids from 0 to 319, found [320]',
    ],
    [
      'fewer log-probs than tokens',
      sampleWith({ tokens: [5], logprobs: [] }),
      'resume: samples[0][0].logprobs: expected 1 numbers, found []',
    ],
    [
      'log-probs that are none',
      sampleWith({ tokens: [5], logprobs: [null] }),
      'resume: samples[0][0].logprobs: expected 1 numbers, found [null]',
    ],
    [
      'an unknown end',
      sampleWith({ finishReason: 'bored' }),
      'resume: samples[0][0].finishReason: expected stop, length or error, found "bored"',
    ],
    [
      'an option out of range',
      (snapshot) => ({ ...snapshot, options: { ...snapshot.options, temperature: -1 } }),
      'generate: temperature: expected a number from 0 to 1000000, found -1',
    ],
    [
      'a prompt that is none',
      (snapshot) => ({ ...snapshot, prompts: [[1.5], [4]] }),
      'generate: sequence 0: token id 1.5 at index 0',
    ],
  ])('%s', async (_, change, sentence) => {
    expect(() => generator.resume(change(good) as GenerationSnapshot)).toThrow(sentence);
    expect(await generator.resume(good).samples).toHaveLength(2);
  });
});

it.each<[string, string]>([
  [
    '{"eos_token_id": "two"}',
    'generation_config.json: eos_token_id: expected a list of non-negative integers',
  ],
  ['[1]', 'generation_config.json'],
  ['{', 'generation_config.json'],
])('a generation_config.json that holds %s is refused', async (content, sentence) => {
  const directory = await changedModel('qwen2');
  writeFileSync(join(directory, 'generation_config.json'), content);
  const before = device.stats().liveBytes;
  await expect(loadModel(device, directory)).rejects.toThrow(sentence);
  await device.synchronize();
  expect(device.stats().liveBytes).toBe(before);
});
