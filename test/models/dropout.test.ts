// Dropout of adapters in training: masks depend on seed, step, row and position, not on the batch.
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { Tape } from '../../src/autograd/tape.js';
import { type Adapter, type DropoutSource, loadAdapter } from '../../src/models/adapter.js';
import { raggedBatch, type Sequence } from '../../src/models/batch.js';
import type { Decoder } from '../../src/models/decoder.js';
import { loadDecoder } from '../../src/models/load.js';
import { nll } from '../../src/objectives/nll.js';
import { headLogprobs } from '../../src/ops/head.js';
import { openTest } from '../ops/devices.js';
import { maxDifference } from '../ops/numbers.js';
import { changedAdapter } from './changed-model.js';
import { goldenDirectory } from './golden.js';

const device = openTest();
const RATE = 0.3;
const first = { ids: [5, 17, 99, 3, 250], rowId: 12 };
const second = { ids: [7, 8, 120], rowId: 40 };
const HIDDEN = 64;

let decoder: Decoder;
let recomputing: Decoder;
let adapter: Adapter;

beforeAll(async () => {
  const directory = goldenDirectory('qwen3');
  decoder = await loadDecoder(device, directory, { dtype: 'f32' });
  recomputing = await loadDecoder(device, directory, { dtype: 'f32', gradientCheckpointing: true });
});
afterAll(() => device.dispose());

/** The golden adapter, with dropout. */
function trainable(): Adapter {
  return loadAdapter(device, decoder.config, changedAdapter('qwen3', { lora_dropout: RATE }), {
    trainable: true,
  });
}

async function hiddenOf(
  sequences: readonly Sequence[],
  dropout?: DropoutSource,
  model = decoder,
): Promise<Float32Array> {
  const batch = raggedBatch(device, sequences, decoder.config);
  const hidden = device.scope(() => model.forward(batch, { adapter, dropout }));
  const values = await hidden.readFloats();
  hidden.dispose();
  batch.dispose();
  return values;
}

describe('a mask', () => {
  test('depends on seed, step, row and role, and on nothing else', async () => {
    adapter = trainable();
    const base = await hiddenOf([first], { seed: 1, step: 4 });
    expect(await hiddenOf([first], { seed: 1, step: 4 })).toEqual(base);
    const others = [
      await hiddenOf([first]),
      await hiddenOf([first], { seed: 2, step: 4 }),
      await hiddenOf([first], { seed: 1, step: 5 }),
      await hiddenOf([first], { seed: 1, step: 4, role: 1 }),
      await hiddenOf([{ ...first, rowId: 13 }], { seed: 1, step: 4 }),
    ];
    for (const other of others) expect(maxDifference(other, base)).toBeGreaterThan(1e-3);

    const packed = await hiddenOf([second, first], { seed: 1, step: 4 });
    expect(packed.slice(second.ids.length * HIDDEN)).toEqual(base);
    adapter.dispose();
  });

  test('is absent without a dropout source, and for an adapter without dropout', async () => {
    adapter = loadAdapter(device, decoder.config, join(goldenDirectory('qwen3'), 'adapter'));
    const plain = await hiddenOf([first]);
    expect(await hiddenOf([first], { seed: 1, step: 4 })).toEqual(plain);
    adapter.dispose();
    adapter = trainable();
    expect(await hiddenOf([first])).toEqual(plain);
    adapter.dispose();
  });
});

test('recomputation draws the same masks: gradients have the same bits', async () => {
  // The first forward creates the rotary table, which is kept.
  adapter = trainable();
  for (const model of [decoder, recomputing]) await hiddenOf([first], undefined, model);
  adapter.dispose();
  await device.synchronize();
  const before = device.stats().liveBytes;
  const gradients: Float32Array[] = [];
  for (const [model, step] of [
    [decoder, 3],
    [recomputing, 3],
    [recomputing, 4],
  ] as const) {
    const own = trainable();
    const role = { adapter: own, dropout: { seed: 5, step } };
    const batch = raggedBatch(device, [first, second], decoder.config);
    const tape = new Tape(device);
    const loss = device.scope(() =>
      tape.run(() => {
        const targets = device.tensor(Int32Array.from([...first.ids, ...second.ids].reverse()));
        const weights = device.tensor(new Float32Array(batch.tokens).fill(1 / batch.tokens));
        return nll(headLogprobs(model.forward(batch, role), model.head(role), targets).logprobs, weights);
      }),
    );
    tape.backward([[loss, 1]]);
    gradients.push(await own.trainable!.grads.readFloats());
    for (const owned of [loss, batch, tape, own]) owned.dispose();
  }
  await device.synchronize();
  expect(device.stats().liveBytes).toBe(before);
  expect(gradients[0]!.some((g) => g !== 0)).toBe(true);
  expect(gradients[1]).toEqual(gradients[0]);
  expect(gradients[2]).not.toEqual(gradients[0]);
});
