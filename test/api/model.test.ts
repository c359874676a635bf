// loadModel and Model.score: what they refuse, and that a score depends on its sequence alone.
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { loadModel, loadTokenizer, type Model } from '../../src/api/model.js';
import { DisposedError } from '../../src/native/errors.js';
import { roundAlike } from '../cuda/gpu.js';
import { changedAdapter, changedModel } from '../models/changed-model.js';
import { expectedOf, goldenDirectory } from '../models/golden.js';
import { openTest } from '../ops/devices.js';
import { maxDifference, random } from '../ops/numbers.js';
import { temporaryDirectory } from '../weights/temporary-directory.js';

const device = openTest();
const directory = goldenDirectory('mistral');
let model: Model;
beforeAll(async () => {
  model = await loadModel(device, directory, { dtype: 'bf16' });
});
afterAll(() => device.dispose());

/** Reproducible ids below the vocabulary of 320. */
const ids = (length: number, seed: number) =>
  Array.from(random(length, seed), (x) => Math.floor((x + 1) * 160));

describe('score', () => {
  test('returns one log-prob fewer than tokens, and one entropy per token', async () => {
    const [one, four] = await model.score([[7], [7, 8, 9, 10]]);
    expect([one!.logprobs.length, one!.entropy.length]).toEqual([0, 1]);
    expect([four!.logprobs.length, four!.entropy.length]).toEqual([3, 4]);
    expect(one!.entropy[0]).toBe(four!.entropy[0]);
    for (const entropy of four!.entropy) expect(entropy).toBeGreaterThan(0);
    for (const entropy of four!.entropy) expect(entropy).toBeLessThanOrEqual(Math.log(320) + 1e-4);
    for (const logprob of four!.logprobs) expect(logprob).toBeLessThan(0);
  });

  test('returns an empty list for no sequences', async () => {
    expect(await model.score([])).toEqual([]);
  });

  test('accepts typed arrays', async () => {
    expect(await model.score([Int32Array.of(7, 8, 9)])).toEqual(await model.score([[7, 8, 9]]));
  });

  // On a GPU other kernels multiply batches of up to 256 tokens, on Hopper of up to 16 too (docs/kernels/cuda.md); across
  // these borders results round apart.
  test('gives a sequence the same bits alone and among many over several batches', async () => {
    // 20 sequences of up to 500 tokens are three batches of 4096.
    const sequences = Array.from({ length: 20 }, (_, i) => ids(1 + ((i * 137) % 512), i + 1));
    expect(sequences.reduce((sum, { length }) => sum + length, 0)).toBeGreaterThan(4096);
    const together = await model.score(sequences);
    const bound = 2 * expectedOf('mistral').naive_bf16.logprob_max_abs_error;
    let alike = 0;
    for (const [i, sequence] of sequences.entries()) {
      const [alone] = await model.score([sequence]);
      if (roundAlike(device, sequence.length, 4096)) {
        expect(alone, `sequence ${i}`).toEqual(together[i]);
        alike++;
      } else
        expect(maxDifference(alone!.logprobs, together[i]!.logprobs), `sequence ${i}`).toBeLessThan(bound);
    }
    expect(alike).toBeGreaterThanOrEqual(sequences.filter(({ length }) => length > 256).length);
  });

  test('gives sequences of 256 tokens together the same bits as each alone', async () => {
    const sequences = [1, 9, 16, 17, 40, 64, 109].map((length, i) => ids(length, i + 50));
    expect(sequences.reduce((sum, { length }) => sum + length, 0)).toBe(256);
    const together = await model.score(sequences);
    for (const [i, sequence] of sequences.entries())
      if (roundAlike(device, sequence.length, 256))
        expect(await model.score([sequence]), `sequence ${i}`).toEqual([together[i]]);
  });

  test('gives the same result in concurrent calls', async () => {
    const sequences = Array.from({ length: 8 }, (_, i) => ids(20 + 61 * i, i + 30));
    const alone = [];
    for (const sequence of sequences) alone.push(await model.score([sequence]));
    expect(await Promise.all(sequences.map((sequence) => model.score([sequence])))).toEqual(alone);
  });

  test('of a prefix equals the prefix of the score', async () => {
    const sequence = ids(300, 77);
    const [whole] = await model.score([sequence]);
    const [prefix] = await model.score([sequence.slice(0, 270)]);
    expect(prefix!.logprobs).toEqual(whole!.logprobs.slice(0, 269));
    expect(prefix!.entropy).toEqual(whole!.entropy.slice(0, 270));
  });

  test('frees all its device memory, also after a refusal', async () => {
    await model.score([[1, 2, 3]]);
    await device.synchronize();
    const before = device.stats().liveBytes;
    for (let i = 0; i < 5; i++) await model.score([ids(50 + i, i)]);
    await expect(model.score([[1], [999]])).rejects.toThrow('token id 999');
    await device.synchronize();
    expect(device.stats().liveBytes).toBe(before);
  });

  test.each<[string, unknown, string]>([
    ['an empty sequence', [[1], []], 'score: sequence 1 is empty; give at least one token'],
    [
      'an id beyond the vocabulary',
      [[1], [1, 320]],
      "score: sequence 1: token id 320 at index 1 is not a whole number in 0..319; use the model's own tokenizer",
    ],
    ['a negative id', [[-1]], 'score: sequence 0: token id -1 at index 0 is not a whole number in 0..319'],
    ['a fraction', [[1, 1.5]], 'score: sequence 0: token id 1.5 at index 1 is not a whole number'],
    ['NaN', [[Number.NaN]], 'score: sequence 0: token id NaN at index 0 is not a whole number'],
    ['text', [['a']], 'score: sequence 0: token id a at index 0 is not a whole number'],
    ['a hole', [[1, undefined]], 'score: sequence 0: token id undefined at index 1 is not a whole number'],
    [
      'too many tokens',
      [[1], Array(513).fill(1)],
      'score: sequence 1 has 513 tokens, and the model reads at most 512 (max_position_embeddings); shorten it',
    ],
    [
      'one sequence instead of several',
      [1, 2],
      'score: expected an array of token ids as sequence 0, found 1',
    ],
    [
      'texts',
      ['hello'],
      'score: expected an array of token ids as sequence 0, found "hello"; tokenizer.encode makes token ids of a text, promptTokens of a chat',
    ],
    ['no array', 'text', 'score: expected an array of token sequences, found "text"'],
    ['nothing', undefined, 'score: expected an array of token sequences, found nothing'],
  ])('refuses %s in one sentence', async (_, sequences, sentence) => {
    await expect(model.score(sequences as number[][])).rejects.toThrow(sentence);
    expect(await model.score([[1, 2]])).toHaveLength(1);
  });
});

describe('dispose', () => {
  test('frees all memory, and may be called twice', async () => {
    await device.synchronize();
    const before = device.stats().liveBytes;
    const own = await loadModel(device, directory, { dtype: 'f32', adapter: join(directory, 'adapter') });
    await own.score([[1, 2, 3]]);
    own.dispose();
    own.dispose();
    await device.synchronize();
    expect(device.stats().liveBytes).toBe(before);
    await expect(own.score([[1]])).rejects.toThrow(DisposedError);
    await expect(own.score([[1]])).rejects.toThrow('the model was used after it was disposed');
    await expect(own.classify([[1]])).rejects.toThrow(DisposedError);
  });

  test('during a score finishes the queued batch and refuses the next one', async () => {
    const own = await loadModel(device, directory, { dtype: 'f32' });
    const [expected] = await own.score([[1, 2, 3]]);
    const running = own.score([[1, 2, 3]]);
    const long = own.score(Array.from({ length: 20 }, (_, i) => ids(500, i)));
    own.dispose();
    expect(await running).toEqual([expected]);
    await expect(long).rejects.toThrow(DisposedError);
    await device.synchronize();
  });

  test('of a device also ends its models', async () => {
    const other = openTest();
    const own = await loadModel(other, directory, { dtype: 'f32' });
    other.dispose();
    await expect(own.score([[1]])).rejects.toThrow(DisposedError);
    own.dispose();
    await expect(loadModel(other, directory, { dtype: 'f32' })).rejects.toThrow('the device was used after');
  });
});

describe('loadModel refuses', () => {
  test.each<[string, () => Promise<string>, string | RegExp]>([
    [
      'an adapter of another size',
      async () => join(goldenDirectory('qwen3'), 'adapter'),
      /qwen3\/adapter is an adapter of another model \(it was trained on qwen3\): its model\.layers\.0\.self_attn\.k_proj has 64 outputs, and that of this one 32$/,
    ],
    [
      'an adapter for other modules',
      async () => changedAdapter('mistral', { target_modules: ['c_attn'] }),
      /adapter_config\.json: target_modules fits no module of the model, see its names in model\.safetensors$/,
    ],
    [
      'an adapter with fewer modules than its weights',
      async () => changedAdapter('mistral', { target_modules: ['q_proj'] }),
      /the weights do not fit the model's configuration; unexpected: 'base_model\.model\.model\.layers\.0\./,
    ],
    [
      'an adapter of another kind',
      async () => changedAdapter('mistral', { peft_type: 'IA3' }),
      /adapter_config\.json: peft_type: expected 'LORA'; other kinds of adapter are not supported, found "IA3"$/,
    ],
    [
      'a directory without an adapter',
      async () => directory,
      /^.*mistral is no adapter: it has no adapter_config\.json$/,
    ],
  ])('%s', async (_, adapter, sentence) => {
    await device.synchronize();
    const before = device.stats().liveBytes;
    const path = await adapter();
    await expect(loadModel(device, directory, { dtype: 'f32', adapter: path })).rejects.toThrow(sentence);
    await device.synchronize();
    expect(device.stats().liveBytes).toBe(before);
  });

  test('a name that leads nowhere, and a run that has not ended', async () => {
    const path = join(directory, 'gone');
    await expect(loadModel(device, path)).rejects.toThrow(
      `loadModel: there is no ${path} (looked for from ${process.cwd()}); name the directory of a model`,
    );
    await expect(loadTokenizer('nope')).rejects.toThrow(/^loadTokenizer: there is no nope .* word-problems/);
    const run = temporaryDirectory();
    writeFileSync(join(run, 'config.yaml'), 'method: sft\n');
    await expect(loadModel(device, run)).rejects.toThrow(
      `loadModel: ${run} holds neither adapter/ nor model/: its training has not ended; continue with: npx steptrain run --resume ${run}`,
    );
  });

  test('a dtype that it does not compute in', async () => {
    await expect(loadModel(device, directory, { dtype: 'f16' as 'f32' })).rejects.toThrow(
      "loadModel: dtype: expected 'f32' or 'bf16', found \"f16\"",
    );
  });

  test('missing weights, and frees those already loaded', async () => {
    const broken = await changedModel('mistral', { remove: ['model.layers.1.mlp.up_proj.weight'] });
    await device.synchronize();
    const before = device.stats().liveBytes;
    await expect(loadModel(device, broken, { dtype: 'f32' })).rejects.toThrow(
      /missing: 'model\.layers\.1\.mlp\.up_proj\.weight'$/,
    );
    await device.synchronize();
    expect(device.stats().liveBytes).toBe(before);
  });
});

test('an adapter changes scores, and a second model on the device does not', async () => {
  const { sequences } = expectedOf('mistral');
  const plain = await loadModel(device, directory, { dtype: 'f32' });
  const before = await plain.score(sequences);
  const adapted = await loadModel(device, directory, { dtype: 'f32', adapter: join(directory, 'adapter') });
  const [changed] = await adapted.score(sequences);
  expect(maxDifference(changed!.logprobs, before[0]!.logprobs)).toBeGreaterThan(1e-2);
  expect(await plain.score(sequences)).toEqual(before);
  plain.dispose();
  adapted.dispose();
});
