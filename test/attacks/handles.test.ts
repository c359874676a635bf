/** Hostile calls of the API: sequences, options, shapes, names, and handles that are gone. The device lives on after each. */
import { symlinkSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { loadModel, type Model } from '../../src/api/model.js';
import { StepTrainError } from '../../src/native/errors.js';
import { openDevice } from '../../src/runtime/device.js';
import { goldenDirectory } from '../models/golden.js';
import { openTest } from '../ops/devices.js';
import { temporaryDirectory } from '../weights/temporary-directory.js';

const device = openTest(undefined, { threads: 1 });
let model: Model;
let expected: string;
const score = async () => JSON.stringify(await model.score([[1, 2, 3]]));
beforeAll(async () => {
  model = await loadModel(device, goldenDirectory('llama3'));
  expected = await score();
});
afterAll(() => device.dispose());

/** Fails with one sentence of ours, and the model computes the same as before. */
async function refused(call: () => unknown, message: RegExp): Promise<void> {
  const error = await (async () => call())().then(
    () => new Error('it was accepted'),
    (reason: Error) => reason,
  );
  expect(error).toBeInstanceOf(StepTrainError);
  expect(error.message).toMatch(message);
  expect(error.message.length).toBeLessThan(600);
  expect(await score()).toBe(expected);
}

const any = (value: unknown) => value as never;

describe('sequences', () => {
  const whole =
    /sequence 0: token id .* at index \d is not a whole number in 0\.\.\d+; use the model's own tokenizer/;
  it.each<[string, unknown, RegExp]>([
    ['nothing', undefined, /expected an array of token sequences, found nothing/],
    ['an empty one', [[]], /sequence 0 is empty; give at least one token/],
    ['a text', ['abc'], /expected an array of token ids as sequence 0, found "abc"/],
    ['null', [null], /expected an array of token ids as sequence 0, found null/],
    ['an object with a length', [{ length: 2 ** 32 }], /expected an array of token ids as sequence 0/],
    ['a negative id', [[-1, 2]], whole],
    ['half an id', [[0.5]], whole],
    ['NaN', [[Number.NaN]], whole],
    ['infinity', [[Number.POSITIVE_INFINITY]], whole],
    ['an id beyond the vocabulary', [[99_999]], whole],
    ['a hole', [[1, any(undefined), 2]], whole],
    ['a text as an id', [['1']], whole],
    [
      '200,000 tokens',
      [new Array(200_000).fill(5)],
      /sequence 0 has 200000 tokens, and the model reads at most \d+/,
    ],
  ])('of %s are refused by score and generate', async (_, sequences, message) => {
    await refused(() => model.score(any(sequences)), message);
    await refused(() => model.generate(any(sequences)), message);
  });

  it('of one token, and none at all, are scored', async () => {
    expect(await model.score([])).toEqual([]);
    const [one] = await model.score([[5]]);
    expect([one?.logprobs.length, one?.entropy.length]).toEqual([0, 1]);
  });
});

describe('options of generate', () => {
  it.each<[string, object, RegExp]>([
    [
      'a misspelt name',
      { maxNewToken: 2 },
      /generate: there is no option "maxNewToken"; did you mean maxNewTokens\? Known are n, maxNewTokens/,
    ],
    ['a prototype', JSON.parse('{"__proto__": 1}'), /there is no option "__proto__"/],
    ['no tokens', { maxNewTokens: 0 }, /maxNewTokens: expected a whole number of at least 1, found 0/],
    [
      'NaN as temperature',
      { temperature: Number.NaN },
      /temperature: expected a number from 0 to 1000000, found NaN/,
    ],
    ['a billion samples', { n: 1e9 }, /n: expected a whole number from 1 to 65536, found 1000000000/],
    ['a share of nothing', { topP: 0 }, /topP: expected a number above 0/],
    ['a bias of no token', { logitBias: { constructor: 1 } }, /logitBias: expected token ids/],
    ['a bias of NaN', { logitBias: { 1: Number.NaN } }, /logitBias of token 1: expected a number/],
    ['an empty stop', { stop: [''] }, /stop: expected texts that are not empty/],
    ['a stop without a tokenizer', { stop: ['x'] }, /stop: expected token ids, or a tokenizer/],
    ['a text as choices', { choices: 'ab' }, /choices: expected a list/],
    ['no memory', { cacheBytes: 0 }, /cacheBytes: expected a whole number above 0/],
    ['half a row', { maxRows: 0.5 }, /maxRows: expected a whole number above 0/],
    ['more alternatives than tokens', { topLogprobs: 1e6 }, /topLogprobs: expected a whole number from 0/],
  ])('with %s are refused', async (_, options, message) => {
    await refused(() => model.generate([[1]], options), message);
  });

  it('with a signal that has fired give nothing', async () => {
    const [[sample] = []] = await model.generate([[1]], { signal: AbortSignal.abort() });
    expect(sample).toMatchObject({ tokens: [], finishReason: 'abort' });
  });
});

describe('tensors', () => {
  it.each<[string, () => unknown, RegExp]>([
    ['half an extent', () => device.empty([0.5]), /whole numbers as extents, found 0\.5/],
    ['NaN as an extent', () => device.empty([Number.NaN]), /whole numbers as extents, found .*nan/],
    ['an infinite extent', () => device.empty([Number.POSITIVE_INFINITY]), /whole numbers as extents/],
    ['an extent below 0', () => device.empty([-1]), /extents of at least 0/],
    ['more elements than memory', () => device.empty([1e9, 1e9]), /fewer than 2\^46 elements/],
    ['five axes', () => device.empty([1, 1, 1, 1, 1]), /at most 4 dimensions/],
    [
      'an unknown dtype',
      () => device.empty([1], any('f64')),
      /a tensor is of f32, bf16, i32, u8, found "f64"/,
    ],
    [
      'fewer values than its shape',
      () => device.tensor(new Float32Array(3), [2, 2]),
      /^a tensor of shape \[2, 2\] takes 4 numbers, got 3$/,
    ],
    [
      'values that were given away',
      () => {
        const values = new Float32Array(4);
        structuredClone(values, { transfer: [values.buffer] });
        return device.tensor(values, [4]);
      },
      /^a tensor of shape \[4\] takes 4 numbers, got 0$/,
    ],
    [
      'a list of numbers',
      () => device.tensor(any([1, 2, 3])),
      /^a tensor takes a typed array such as Float32Array\.from\(\[1, 2, 3\]\), found \[1,2,3\]$/,
    ],
    [
      'a list of numbers with its shape',
      () => device.tensor(any([1, 2]), [2], 'bf16'),
      /typed array such as/,
    ],
    ['no values', () => device.tensor(any(undefined)), /typed array such as .*, found nothing/],
    ['values of another type', () => device.tensor(any(new Float64Array(2))), /takes|Float64Array/],
    ['a view past its end', () => device.zeros([4]).view(2, [4]), /./],
    ['half an offset in a view', () => device.zeros([4]).view(any(Number.NaN), [5]), /./],
  ])('with %s are refused', async (_, call, message) => {
    await refused(call, message);
  });

  it('copy values that threads share', async () => {
    const shared = new Float32Array(new SharedArrayBuffer(8));
    shared.set([1, 2]);
    const tensor = device.tensor(shared);
    expect(Array.from(await tensor.readFloats())).toEqual([1, 2]);
    tensor.dispose();
  });
});

describe('names', () => {
  const link = () => {
    const path = join(temporaryDirectory(), 'link');
    symlinkSync(path, path);
    return path;
  };
  it.each<[string, () => unknown, RegExp]>([
    [
      'no name',
      () => loadModel(device, any(undefined)),
      /loadModel: expected the name of a model or a directory, found nothing/,
    ],
    ['null', () => loadModel(device, any(null)), /found null/],
    ['an empty name', () => loadModel(device, ''), /found an empty text/],
    ['a name with a NUL', () => loadModel(device, 'a\0b'), /cannot read/],
    ['a file', () => loadModel(device, '/etc/passwd'), /a part of the path is not a directory/],
    ['a link to itself', () => loadModel(device, link()), /cannot read/],
    ['nowhere', () => loadModel(device, '/nowhere'), /there is no \/nowhere/],
    [
      'an unknown dtype',
      () => loadModel(device, goldenDirectory('llama3'), any({ dtype: 'f64' })),
      /dtype: expected 'f32' or 'bf16', found "f64"/,
    ],
    [
      'a misspelt option',
      () => loadModel(device, goldenDirectory('llama3'), any({ dtpye: 'f32' })),
      /loadModel: there is no option "dtpye"/,
    ],
    ['an unknown device', () => openDevice('gpu'), /unknown device 'gpu'/],
    [
      'a misspelt option of a device',
      () => openDevice('cpu', any({ thread: 1 })),
      /openDevice: there is no option "thread"; did you mean threads\? Known are threads, isa, memoryLimit/,
    ],
    [
      'a negative number of threads',
      () => openDevice('cpu', { threads: -1 }),
      /threads: expected a whole number from 0/,
    ],
    [
      'NaN threads',
      () => openDevice('cpu', { threads: Number.NaN }),
      /threads: expected a whole number from 0/,
    ],
  ])('such as %s get a sentence', async (_, call, message) => {
    await refused(call, message);
  });
});

describe('what is gone', () => {
  it.each<[string, (own: ReturnType<typeof openTest>, other: Model) => unknown]>([
    [
      'a model',
      (_, other) => {
        other.dispose();
        return other.score([[1]]);
      },
    ],
    [
      'a model that generates',
      (_, other) => {
        const samples = other.generate([[1]], { maxNewTokens: 50, ignoreEos: true });
        other.dispose();
        return samples;
      },
    ],
    [
      'a device that scores',
      (own, other) => {
        // More than one batch, so that some are to come.
        const scores = other.score(Array.from({ length: 2000 }, () => Array<number>(30).fill(1)));
        own.dispose();
        return scores;
      },
    ],
    [
      'a device that generates',
      (own, other) => {
        const samples = other.generate([[1]], { maxNewTokens: 50, ignoreEos: true });
        own.dispose();
        return samples;
      },
    ],
    [
      'a device',
      (own) => {
        own.dispose();
        return own.zeros([1]);
      },
    ],
    [
      'a tensor',
      (own) => {
        const x = own.zeros([1]);
        x.dispose();
        return own.ops.add({ x, y: x });
      },
    ],
    [
      'a tensor of a device that is gone',
      (own) => {
        const x = own.zeros([1]);
        own.dispose();
        return x.read();
      },
    ],
    [
      'a tensor of another device',
      (own) => {
        const x = own.zeros([1]);
        return device.ops.add({ x, y: x });
      },
    ],
  ])('%s gets a sentence, and another device goes on', async (_, use) => {
    const own = openTest(undefined, { threads: 1 });
    const other = await loadModel(own, goldenDirectory('llama3'));
    await refused(() => use(own, other), /dispose|device/);
    own.dispose();
  });
});
