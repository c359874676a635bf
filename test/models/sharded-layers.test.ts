// Frozen layers of which each process holds a part: the bits of a whole base, and less memory. NCCL's mock carries the bytes.
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { modelWeights, readModelConfig } from '../../src/architectures/table.js';
import type { TrainableParameters } from '../../src/autograd/parameters.js';
import { Tape } from '../../src/autograd/tape.js';
import { loadAdapter } from '../../src/models/adapter.js';
import { raggedBatch } from '../../src/models/batch.js';
import type { Decoder } from '../../src/models/decoder.js';
import { type LoadOptions, loadDecoder } from '../../src/models/load.js';
import { layerPlaces, partOf } from '../../src/models/sharded-layers.js';
import { addon } from '../../src/native/addon.js';
import { nll } from '../../src/objectives/nll.js';
import { openDevice } from '../../src/runtime/device.js';
import { scoreRows } from '../../src/sequences/forward.js';
import { compileMockNccl, hasCompiler } from '../carriers/nccl-library.js';
import { changedAdapter } from './changed-model.js';
import { goldenDirectory } from './golden.js';

const folder = mkdtempSync(join(tmpdir(), 'steptrain-sharded-'));
const library = join(folder, 'libnccl.so.2');
const log = join(folder, 'calls');
const ids = [5, 17, 90, 3, 50, 12, 7];

/** Loss and gradients of an adapter on a decoder, and the most that was held. */
async function stepOf(load: LoadOptions, model: string) {
  const device = openDevice('cpu', { threads: 1 });
  const decoder = await loadDecoder(device, goldenDirectory(model), load);
  await device.synchronize();
  const held = device.stats().liveBytes;
  const adapter = loadAdapter(device, decoder.config, changedAdapter(model, {}), { trainable: true });
  const parameters = adapter.trainable as TrainableParameters;
  const hidden = await hiddenOf(decoder);
  const tape = new Tape(device);
  const rows = ids.slice(1).map((token, row) => ({ row, token }));
  const sequence = { ids, positions: ids.map((_, t) => t), branch: undefined, rowId: 0 };
  device.resetPeak();
  const loss = device.scope(() =>
    tape.run(() => {
      const { logprobs } = scoreRows(decoder, { adapter }, [{ sequence, rows }]);
      return nll(logprobs, device.tensor(new Float32Array(rows.length).fill(1 / rows.length)));
    }),
  );
  tape.backward([[loss, 1]]);
  tape.dispose();
  const found = {
    hidden,
    loss: await loss.readFloats(),
    gradients: await parameters.grads.readFloats(),
    held,
    live: device.stats().liveBytes,
  };
  loss.dispose();
  adapter.dispose();
  decoder.dispose();
  device.dispose();
  return found;
}

async function hiddenOf(decoder: Decoder): Promise<Float32Array> {
  const batch = raggedBatch(decoder.device, [{ ids }], decoder.config);
  const hidden = decoder.forward(batch);
  const values = await hidden.readFloats();
  hidden.dispose();
  batch.dispose();
  return values;
}

describe.skipIf(!hasCompiler)('layers that several processes hold together (needs g++)', () => {
  beforeAll(() => {
    compileMockNccl(folder);
    // Bytes that nobody waits for come too late.
    process.env.MOCK_NCCL_DELAY = '2';
    process.env.MOCK_NCCL_LOG = log;
  });
  afterAll(() => {
    for (const name of ['MOCK_NCCL_DELAY', 'MOCK_NCCL_LOG']) delete process.env[name];
    rmSync(folder, { recursive: true, force: true });
  });

  it.each([
    ['qwen3', 'f32', 2, true],
    ['qwen3', 'bf16', 3, false],
    ['opt', 'bf16', 2, true],
    ['variants/qwen3-moe', 'f32', 2, false],
    ['variants/qwen3-moe', 'bf16', 3, true],
    ['variants/qwen3_5-moe', 'f32', 2, false],
  ] as const)(
    '%s in %s over %i give the bits of a whole base, forward and backward; gathered ahead: %s',
    async (model, dtype, size, ahead) => {
      rmSync(log, { force: true });
      const load = { dtype, gradientCheckpointing: true };
      const whole = await stepOf(load, model);
      const id = await addon().ncclId(library);
      const ranks = await Promise.all(
        Array.from({ length: size }, async (_, rank) => {
          const { communicator } = await addon().openNccl(library, id, rank, size, -1);
          const found = await stepOf({ ...load, holders: { communicator, rank, size, ahead } }, model);
          await addon().closeCarrier(communicator);
          return found;
        }),
      );
      expect(whole.gradients.some((value) => value !== 0)).toBe(true);
      // Two forwards and a backward: none is gathered in vain.
      const { numLayers } = readModelConfig(goldenDirectory(model));
      const gathers = readFileSync(log, 'utf8').match(/^0 ncclAllGather/gm);
      expect(gathers).toHaveLength(3 * numLayers);
      const weights = modelWeights(readModelConfig(goldenDirectory(model)));
      const elements = layerPlaces(weights).sizes.reduce((sum, each) => sum + each, 0);
      const bytes = (dtype === 'bf16' ? 2 : 4) * elements;
      for (const found of ranks) {
        expect(found.hidden).toEqual(whole.hidden);
        expect(found.loss).toEqual(whole.loss);
        expect(found.gradients).toEqual(whole.gradients);
        // All but its part of the layers is gone, but for what aligns it.
        expect(whole.held - found.held).toBeGreaterThan(bytes * (1 - 1 / size) * 0.9);
        // And no layer stays whole after the step.
        expect(found.live - found.held).toBeLessThanOrEqual(whole.live - whole.held);
      }
    },
  );

  it('need gradient checkpointing, and do not sample', async () => {
    const id = await addon().ncclId(library);
    const { communicator } = await addon().openNccl(library, id, 0, 1, -1);
    const holders = { communicator, rank: 0, size: 1 };
    await expect(stepOf({ dtype: 'f32', holders }, 'qwen3')).rejects.toThrow(/gradient_checkpointing/);
    await addon().closeCarrier(communicator);
  });
});

it('are divided into parts that begin where vectors do and cover every layer', () => {
  const specs = modelWeights(readModelConfig(goldenDirectory('qwen3')));
  const { sizes, places } = layerPlaces(specs);
  expect(sizes.length).toBe(readModelConfig(goldenDirectory('qwen3')).numLayers);
  for (const { offset } of places.values()) expect(offset % 64).toBe(0);
  for (const size of [1, 2, 3, 8])
    for (const elements of sizes) {
      expect(partOf(elements, size) % 64).toBe(0);
      expect(partOf(elements, size) * size).toBeGreaterThanOrEqual(elements);
    }
  expect([...places.keys()].some((name) => /norm|embed|bias/.test(name))).toBe(false);
});
