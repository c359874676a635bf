// Gradients that are summed and freed during the backward pass: the bits of a process that holds all, and less memory.
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, describe, expect, it } from 'vitest';
import { modelWeights, parseModelConfig } from '../../../src/architectures/table.js';
import { TrainableParameters } from '../../../src/autograd/parameters.js';
import type { Carrier } from '../../../src/cluster/carriers.js';
import type { Cluster } from '../../../src/cluster/cluster.js';
import { addFloats, addTree } from '../../../src/cluster/shards.js';
import type { FrameConfig } from '../../../src/config/schema.js';
import { completeRunConfig } from '../../../src/methods/config.js';
import { loadAdapter } from '../../../src/models/adapter.js';
import { loadDecoder, loadTrainableDecoder } from '../../../src/models/load.js';
import { layerNumber } from '../../../src/models/sharded-layers.js';
import { addon } from '../../../src/native/addon.js';
import { nll } from '../../../src/objectives/nll.js';
import type { Device } from '../../../src/runtime/device.js';
import { shareWork } from '../../../src/runtime/processes.js';
import type { Tensor } from '../../../src/runtime/tensor.js';
import { scoreRows } from '../../../src/sequences/forward.js';
import { accumulate } from '../../../src/train/accumulate.js';
import { AdamW } from '../../../src/train/adamw.js';
import { memoryPlan } from '../../../src/train/plan/memory-plan.js';
import { divideBatches, overShards } from '../../../src/train/sums/data-parallel.js';
import { gradientSum } from '../../../src/train/sums/gradient-sum.js';
import { applyGradients } from '../../../src/train/update.js';
import { fellows, overSockets } from '../../cluster/fellows.js';
import { expectedOf, goldenDirectory } from '../../models/golden.js';
import { openTest } from '../../ops/devices.js';

const folder = mkdtempSync(join(tmpdir(), 'steptrain-released-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));
const open: Device[] = [];
afterEach(() => {
  for (const device of open.splice(0)) device.dispose();
});
let files = 0;

/** Beside the queue through shared memory, in ops of the queue as with NCCL, and through sockets. */
type Way = 'beside' | 'ops' | 'sockets';

interface OfProcess {
  readonly device: Device;
  readonly cluster: Cluster;
  readonly carrier: Carrier | undefined;
}

/** What `use` finds in each of so many processes, whose gradients are released. */
async function inProcesses<Found>(
  size: number,
  way: Way,
  use: (on: OfProcess) => Promise<Found>,
): Promise<Found[]> {
  const path = join(folder, `rings-${files++}`);
  const port = 23_000 + (process.pid % 500) * 20 + (files % 20);
  const all: OfProcess[] = [];
  const clusters = way === 'sockets' ? await overSockets(size, port) : fellows(size);
  for (const [rank, cluster] of clusters.entries()) {
    const device = openTest();
    open.push(device);
    const opened = way === 'sockets' ? undefined : await addon().openShared(path, rank, size);
    const carrier =
      opened && ({ name: way === 'ops' ? 'nccl' : 'shm', communicator: opened.communicator } as Carrier);
    divideBatches(device, { shards: size, cluster, carrier, zero: 2 });
    shareWork(device, { cluster, settle: async () => {}, add: () => {}, releases: true });
    all.push({ device, cluster, carrier });
  }
  const found = await Promise.all(all.map(use));
  await Promise.all(
    all.map(({ carrier, cluster }) =>
      carrier ? addon().closeCarrier(carrier.communicator) : cluster.close(),
    ),
  );
  return found;
}

/** Whose gradients of all experts lie in one tensor. */
const EXPERTS = 'variants/qwen3-moe';
const SHORT = [
  [1, 5, 9, 2, 7, 3],
  [3, 4, 8, 6],
  [2, 7, 7, 1, 5],
];

const OPTIONS = { beta1: 0.9, beta2: 0.999, epsilon: 1e-8, weightDecay: 0.1, maxGradNorm: 0.5 };

/** Parameters after three steps, of which the second has a gradient that is not finite. */
async function trained(device: Device, name: string, lora: boolean, gradientCheckpointing: boolean) {
  const directory = goldenDirectory(name);
  const items = (name === EXPERTS ? SHORT : expectedOf(name).sequences).map((ids, rowId) => ({
    sequence: { ids, positions: ids.map((_, t) => t), branch: undefined, rowId },
    rows: ids.slice(1).map((token, row) => ({ row, token })),
  }));
  const options = { dtype: 'f32', gradientCheckpointing } as const;
  const opened = lora
    ? { decoder: await loadDecoder(device, directory, options) }
    : loadTrainableDecoder(device, directory, options);
  const { decoder } = opened;
  const adapter = lora
    ? loadAdapter(device, decoder.config, `${directory}/adapter`, { trainable: true })
    : undefined;
  const parameters = ('parameters' in opened ? opened.parameters : adapter?.trainable) as TrainableParameters;
  const optimizer = new AdamW(parameters, OPTIONS);
  const updates = [];
  for (let step = 0; step < 3; step++) {
    await accumulate(
      items,
      {
        device,
        microBatchTokens: 10_000,
        sizeOf: ({ sequence }) => sequence.ids.length,
        normaliser: () => 1,
        trains: [parameters],
      },
      (group) => {
        const { logprobs } = scoreRows(decoder, { adapter }, group);
        const weights = new Float32Array(logprobs.size).fill(step === 1 ? Number.POSITIVE_INFINITY : 0.1);
        return [{ loss: nll(logprobs, device.tensor(weights)) }];
      },
    );
    updates.push(await applyGradients(optimizer, 1e-2, {}));
  }
  const values = await parameters.values.readFloats();
  optimizer.dispose();
  for (const owned of [adapter ?? parameters, decoder]) owned.dispose();
  return { updates, values };
}

it.each([
  ['qwen2', true, false, 'beside'],
  ['qwen2', false, false, 'sockets'],
  ['qwen2', false, false, 'ops'],
  ['opt', false, true, 'beside'],
  [EXPERTS, true, true, 'ops'],
  [EXPERTS, false, false, 'beside'],
] as const)(
  'of %s, LoRA %s, checkpoints %s, train to the bits of one process, %s',
  async (name, lora, checkpoints, way) => {
    for (const size of [2, 3]) {
      const alone = openTest();
      divideBatches(alone, { shards: size });
      const expected = await trained(alone, name, lora, checkpoints);
      alone.dispose();
      expect(expected.updates[1]).toHaveProperty('nonFinite');
      const all = await inProcesses(size, way, ({ device }) => trained(device, name, lora, checkpoints));
      for (const { updates, values } of all) {
        expect([updates[0], updates[2]]).toEqual([expected.updates[0], expected.updates[2]]);
        expect(updates[1]).toEqual({ nonFinite: expect.stringMatching(/^the gradient of /) });
        expect(Buffer.from(values.buffer).equals(Buffer.from(expected.values.buffer))).toBe(true);
      }
    }
  },
);

describe('by layer', () => {
  const [LAYERS, EACH] = [8, 300_000];
  const names = Array.from({ length: LAYERS }, (_, layer) => `model.layers.${layer}.w`);
  const values = (rank: number, layer: number) =>
    Float32Array.from({ length: EACH }, (_, i) => Math.sin(i % 1009) * 10 ** ((rank + layer) % 5));
  const fresh = (device: Device) =>
    new TrainableParameters(
      device,
      names.map((name) => ({ name, shape: [EACH], init: new Float32Array(EACH) })),
    );

  const LAYER = 4 * EACH;
  // Of 8 layers the one that is computed, and that before it, which is exchanged. By ops: what is sent of it and what arrives, and
  // the sum of the one before with the part that this process has added.
  it.each([
    ['beside', 2 * LAYER + (4 << 20)],
    ['ops', 4.25 * LAYER],
    ['sockets', 2 * LAYER],
  ] as const)(
    'are held as a slice and little more, and refused once they are summed, %s',
    async (way, held) => {
      const size = 4;
      const found = await inProcesses(size, way, async ({ device, cluster, carrier }) => {
        const parameters = fresh(device);
        const optimizer = new AdamW(parameters, OPTIONS);
        parameters.zeroGrads();
        await device.synchronize();
        const before = device.stats().liveBytes;
        device.resetPeak();
        const sum = gradientSum(parameters, size, cluster, carrier, true);
        for (let layer = LAYERS - 1; layer >= 0; layer--) {
          // Nothing was added to the gradient of the third one.
          if (layer !== 3) parameters.list[layer]?.grad?.write(values(cluster.rank, layer));
          await sum.passed(cluster.rank, layer);
        }
        await sum.add(cluster.rank);
        await sum.finish();
        const { peakBytes, liveBytes } = device.stats();
        expect(liveBytes).toBe(before);
        expect(peakBytes - before).toBeLessThan(held + 4096);
        expect(() => parameters.list[0]?.grad).toThrow('a gradient was added to after it had been summed');
        expect(() => parameters.part(() => true)).toThrow(/run\.zero 2 is for methods that train/);
        const slice = await parameters.grads.readFloats();
        optimizer.dispose();
        parameters.dispose();
        return slice;
      });
      const whole = new Float32Array(LAYERS * EACH);
      names.forEach((_, layer) => {
        const shards = Array.from({ length: size }, (_, first) => ({
          first,
          count: 1,
          values: values(first, layer),
        }));
        if (layer !== 3) whole.set(addTree(shards, addFloats), layer * EACH);
      });
      const bytes = found.map(({ buffer, byteOffset, byteLength }) =>
        Buffer.from(buffer, byteOffset, byteLength),
      );
      expect(Buffer.concat(bytes).equals(Buffer.from(whole.buffer))).toBe(true);
    },
  );

  it.each(['beside', 'sockets'] as const)(
    'are on their way while the next layer is computed, which waits for no more than one, %s',
    async (way) => {
      let begin = () => {};
      const begun = new Promise<void>((resolve) => {
        begin = resolve;
      });
      await inProcesses(2, way, async ({ device, cluster, carrier }) => {
        const parameters = fresh(device);
        const optimizer = new AdamW(parameters, OPTIONS);
        parameters.zeroGrads();
        const sum = gradientSum(parameters, 2, cluster, carrier, true);
        const done: number[] = [];
        const pass = async (layer: number) => {
          parameters.list[layer]?.grad?.write(values(cluster.rank, layer));
          await sum.passed(cluster.rank, layer);
          done.push(layer);
        };
        if (cluster.rank === 1) await begun;
        await pass(LAYERS - 1);
        const next = pass(LAYERS - 2);
        if (cluster.rank === 0) {
          // The queue is not held up by the other process, which has given nothing yet; the pass is.
          await device.synchronize();
          await new Promise((resolve) => setTimeout(resolve, 50));
          expect(done).toEqual([LAYERS - 1]);
          begin();
        }
        await next;
        await sum.add(cluster.rank);
        await sum.finish();
        optimizer.dispose();
        parameters.dispose();
      });
    },
  );

  it.each(['beside', 'ops', 'sockets'] as const)(
    'of two roles are summed in one order, also by a process that has nothing to compute, %s',
    async (way) => {
      const found = await inProcesses(2, way, async ({ device, cluster, carrier }) => {
        const both = [fresh(device), fresh(device)];
        const optimizers = both.map((parameters) => new AdamW(parameters, OPTIONS));
        // One item, of two processes.
        const parallel = { shards: 2, cluster, carrier, zero: 2 } as const;
        await overShards([{}], both, parallel, async (own, passed) => {
          for (let layer = LAYERS - 1; own.length > 0 && layer >= 0; layer--) {
            for (const [of, { list }] of both.entries()) list[layer]?.grad?.write(values(of, layer));
            await passed(layer);
          }
          return [];
        });
        const slices = await Promise.all(both.map(({ grads }) => grads.readFloats()));
        for (const each of [...optimizers, ...both]) each.dispose();
        return slices;
      });
      for (const of of [0, 1]) {
        const whole = Buffer.concat(found.map((slices) => Buffer.from((slices[of] as Float32Array).buffer)));
        const expected = Buffer.concat(names.map((_, layer) => Buffer.from(values(of, layer).buffer)));
        expect(whole.equals(expected)).toBe(true);
      }
    },
  );

  it('need shards of one micro-batch', async () => {
    const failed = await inProcesses(2, 'beside', async ({ device }) => {
      const parameters = fresh(device);
      const optimizer = new AdamW(parameters, OPTIONS);
      const ran = accumulate(
        [5, 6, 5, 6],
        { device, microBatchTokens: 8, sizeOf: (item) => item, normaliser: () => 1, trains: [parameters] },
        () => [],
      );
      await expect(ran).rejects.toThrow(/a shard of 11 tokens is 2 micro-batches of 8: raise micro_batch/);
      optimizer.dispose();
      parameters.dispose();
      return true;
    });
    expect(failed).toEqual([true, true]);
  });
});

describe('the memory plan', () => {
  const SIZE = 4;
  const shape = parseModelConfig(
    {
      ...{ model_type: 'llama', hidden_size: 256, intermediate_size: 704, num_hidden_layers: 8 },
      ...{ num_attention_heads: 4, vocab_size: 300, max_position_embeddings: 64 },
      tie_word_embeddings: false,
    },
    'config.json',
  );
  const config = completeRunConfig({ method: 'sft', lora: 'none', data: { source: 'arithmetic' } });
  const planned = (collectives: FrameConfig['run']['collectives'], more: object = {}) => {
    const device = { info: () => ({ name: 'cpu' }) } as Device;
    const run = { ...config.run, zero: 2 as const, shards: SIZE, collectives, ...more };
    const roles = [{ role: 'policy', held: 'trained' }] as const;
    return memoryPlan(device, { ...config, run }, roles, shape, { processes: SIZE }).fixedBytes;
  };

  it('counts the same whatever carries the gradients beside the backward pass', () => {
    const plans = (['auto', 'tcp', 'shm', 'mpi'] as const).map((each) => planned(each));
    expect(new Set(plans).size).toBe(1);
    // With 1, and with more shards, gradients are whole.
    expect(planned('tcp', { zero: 1 })).toBeGreaterThan((plans[0] as number) * 1.1);
    expect(planned('tcp', { shards: 2 * SIZE })).toBeGreaterThan(planned('tcp', { zero: 1 }));
  });

  it.each(['beside', 'sockets'] as const)('is what a process holds, %s', async (way) => {
    const weights = modelWeights(shape).map((spec) => ({
      ...spec,
      elements: spec.shape.reduce((a, b) => a * b, 1),
    }));
    const peaks = await inProcesses(SIZE, way, async ({ device, cluster, carrier }) => {
      const before = device.stats().liveBytes;
      device.resetPeak();
      const init = ({ elements }: { elements: number }) => new Float32Array(elements);
      const parameters = new TrainableParameters(
        device,
        weights.map((spec) => ({ name: spec.name, shape: spec.shape, init: init(spec) })),
      );
      const optimizer = new AdamW(parameters, OPTIONS);
      parameters.zeroGrads();
      const sum = gradientSum(parameters, SIZE, cluster, carrier, true);
      // What lies outside of layers gets its first gradients from the head.
      for (const layer of [
        undefined,
        ...Array.from({ length: shape.numLayers }, (_, i) => shape.numLayers - 1 - i),
      ]) {
        for (const { name, grad } of parameters.list.filter((each) => layerNumber(each.name) === layer))
          device.ops.fill({ x: grad as Tensor, value: name.length });
        if (layer !== undefined) await sum.passed(cluster.rank, layer);
      }
      await sum.add(cluster.rank);
      await sum.finish();
      const { peakBytes } = device.stats();
      optimizer.dispose();
      parameters.dispose();
      return peakBytes - before;
    });
    for (const peak of peaks) {
      // Sockets take nothing on the device beside the gradients.
      expect(peak / planned('auto')).toBeGreaterThan(0.85);
      expect(peak / planned('auto')).toBeLessThan(1.01);
    }
  });
});
