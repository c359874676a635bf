// Gradients that travel while the backward pass goes on: what is called complete is so, and the sum has the bits of the tree.
import { afterAll, describe, expect, it } from 'vitest';
import { TrainableParameters } from '../../../src/autograd/parameters.js';
import { Tape } from '../../../src/autograd/tape.js';
import type { Carrier } from '../../../src/cluster/carriers.js';
import type { Cluster } from '../../../src/cluster/cluster.js';
import { addFloats, addTree, type ShardSum, shardsOf, sumsHeld } from '../../../src/cluster/shards.js';
import { Waiting } from '../../../src/cluster/waiting.js';
import { loadAdapter } from '../../../src/models/adapter.js';
import { loadDecoder, loadTrainableDecoder } from '../../../src/models/load.js';
import { layerNumber } from '../../../src/models/sharded-layers.js';
import { nll } from '../../../src/objectives/nll.js';
import { scoreRows } from '../../../src/sequences/forward.js';
import { bucketsOf } from '../../../src/train/sums/buckets.js';
import { gradientSum } from '../../../src/train/sums/gradient-sum.js';
import { sliceLength } from '../../../src/train/sums/slices.js';
import { overSockets } from '../../cluster/fellows.js';
import { expectedOf, goldenDirectory } from '../../models/golden.js';
import { openTest } from '../../ops/devices.js';

const device = openTest();
afterAll(() => device.dispose());

describe('buckets', () => {
  const named = (sizes: readonly (readonly [string, number])[]) => {
    const offsets = [0];
    for (const [, size] of sizes) offsets.push((offsets.at(-1) as number) + size);
    return { list: sizes.map(([name]) => ({ name })), offsets } as unknown as TrainableParameters;
  };

  it('go from the last layer to the first, then to what lies outside of layers, and hold all', () => {
    const found = bucketsOf(
      named([
        ['model.embed.weight', 25],
        ['model.layers.0.a', 4],
        ['model.layers.0.b', 4],
        ['model.layers.1.a', 2],
        ['model.layers.2.a', 3],
        ['model.norm.weight', 1],
      ]),
      10,
      5,
    );
    expect(found).toEqual([
      { begin: 33, end: 38, layer: 1 },
      { begin: 25, end: 33, layer: 0 },
      { begin: 0, end: 10, layer: -1 },
      { begin: 10, end: 20, layer: -1 },
      { begin: 20, end: 25, layer: -1 },
      { begin: 38, end: 39, layer: -1 },
    ]);
  });
});

describe.each(['qwen2', 'qwen3', 'opt'])('a backward pass of %s', (name) => {
  const directory = goldenDirectory(name);
  const items = expectedOf(name).sequences.map((ids, rowId) => ({
    sequence: { ids, positions: ids.map((_, t) => t), branch: undefined, rowId },
    rows: ids.slice(1).map((token, row) => ({ row, token })),
  }));

  it.each([
    ['an adapter', true, false],
    ['all weights', false, false],
    ['all weights, with checkpoints', false, true],
  ])('has completed the gradients of a layer when it says so: %s', async (_, lora, gradientCheckpointing) => {
    const options = { dtype: 'f32', gradientCheckpointing } as const;
    const opened = lora
      ? { decoder: await loadDecoder(device, directory, options) }
      : loadTrainableDecoder(device, directory, options);
    const { decoder } = opened;
    const adapter = lora
      ? loadAdapter(device, decoder.config, `${directory}/adapter`, { trainable: true })
      : undefined;
    const parameters = (
      'parameters' in opened ? opened.parameters : adapter?.trainable
    ) as TrainableParameters;
    const tape = new Tape(device);
    // Two forwards, as of a policy and of what it is compared with: both add to the same gradients.
    const losses = device.scope(() =>
      tape.run(() =>
        [items.slice(0, 1), items.slice(1)].map((own) => {
          const { logprobs } = scoreRows(decoder, { adapter }, own);
          return nll(logprobs, device.tensor(new Float32Array(logprobs.size).fill(0.1)));
        }),
      ),
    );
    const early = new Map<string, Promise<Float32Array>>();
    const layers: number[] = [];
    for (const layer of tape.backwardByLayer(losses.map((loss) => [loss, 1]))) {
      layers.push(layer);
      for (const { name, grad } of parameters.list)
        if (layerNumber(name) === layer) early.set(name, grad!.readFloats());
    }
    tape.dispose();
    const { numLayers } = decoder.config;
    expect(layers).toEqual(Array.from({ length: numLayers }, (_, i) => numLayers - 1 - i));
    const ofLayers = parameters.list.filter(({ name }) => layerNumber(name) !== undefined);
    expect([...early.keys()].sort()).toEqual(ofLayers.map(({ name }) => name).sort());
    for (const { name, grad } of ofLayers) {
      const values = await grad!.readFloats();
      expect(
        values.some((value) => value !== 0),
        name,
      ).toBe(true);
      expect(await early.get(name), name).toEqual(values);
    }
    for (const owned of [...losses, ...(lora ? [adapter] : [parameters]), decoder]) owned?.dispose();
  });
});

const SIZES = [300_000, 200_000, 300_000, 7];
const NAMES = ['layers.0.a', 'layers.1.a', 'layers.2.a', 'head'].map((name) => `model.${name}.weight`);
const LENGTH = SIZES.reduce((sum, size) => sum + size, 0);
const fresh = () =>
  new TrainableParameters(
    device,
    NAMES.map((name, i) => ({ name, shape: [SIZES[i]!], init: new Float32Array(SIZES[i]!) })),
  );
const gradient = (shard: number) =>
  Float32Array.from(
    { length: LENGTH },
    (_, i) => Math.sin(shard * 97 + (i % 1013)) * 10 ** ((shard + i) % 6),
  );

it.each([
  [2, 2],
  [4, 2],
  [7, 2],
  [16, 2],
])(
  'of %i shards %i processes hold as many sums over earlier ones as the memory plan counts',
  async (shards, size) => {
    const held: number[] = [];
    for (let rank = 0; rank < size; rank++) {
      const own = openTest();
      const parameters = new TrainableParameters(own, [
        { name: 'w', shape: [LENGTH], init: new Float32Array(LENGTH) },
      ]);
      const cluster = { rank, size, waiting: new Waiting() } as Cluster;
      const sum = gradientSum(parameters, shards, cluster, { communicator: 0 } as Carrier);
      await own.synchronize();
      own.resetPeak();
      const before = own.stats().liveBytes;
      const { begin, end } = shardsOf(shards, rank, size);
      for (let shard = begin; shard < end; shard++) await sum.add(shard);
      await own.synchronize();
      held.push(Math.round((own.stats().peakBytes - before) / (4 * LENGTH)));
      own.dispose();
    }
    expect(Math.max(...held)).toBe(sumsHeld(shards, size));
  },
);

describe('the sum of gradients through sockets', () => {
  it.each([
    [2, 2],
    [4, 2],
    [6, 4],
    [5, 3],
    [1, 2],
    [3, 3, true],
    [4, 2, true],
    [1, 2, true],
  ])(
    'of %i shards over %i processes has the bits of their tree; in slices alone: %s',
    async (shards, size, isSliced = false) => {
      const port = 22_000 + (process.pid % 500) * 20 + shards + (isSliced ? 10 : 0);
      const expected = addTree(
        Array.from({ length: shards }, (_, first) => ({ first, count: 1, values: gradient(first) })),
        addFloats,
      );
      const clusters = await overSockets(size, port);
      const found = await Promise.all(
        clusters.map(async (cluster) => {
          const parameters = fresh();
          const sum = gradientSum(parameters, shards, cluster, undefined, isSliced);
          const { begin, end } = shardsOf(shards, cluster.rank, size);
          for (let shard = begin; shard < end; shard++) {
            parameters.grads.write(gradient(shard));
            for (const layer of [2, 1, 0]) sum.passed(shard, layer);
            await sum.add(shard);
          }
          await sum.finish();
          const grads = await parameters.grads.readFloats();
          parameters.dispose();
          return grads;
        }),
      );
      const length = isSliced ? sliceLength(LENGTH, size) : LENGTH;
      found.forEach((each, rank) => {
        const first = isSliced ? rank * length : 0;
        expect(each.subarray(first, first + length)).toEqual(expected.subarray(first, first + length));
        // The others' slices have not come.
        if (isSliced && shards > 1) expect(each).not.toEqual(expected);
      });
      await Promise.all(clusters.map((cluster) => cluster.close()));
    },
  );

  it('begins with what is complete, of the last shard alone', async () => {
    const given: { readonly length: number; readonly first: number }[] = [];
    const cluster = {
      rank: 0,
      size: 2,
      waiting: new Waiting(),
      async sum(shards: Promise<readonly ShardSum[]>, length: number) {
        const [own] = await shards;
        given.push({ length, first: own!.values[0] as number });
        return own!.values;
      },
    } as unknown as Cluster;
    const parameters = fresh();
    const sum = gradientSum(parameters, 4, cluster, undefined);
    const fill = (value: number) => parameters.grads.write(new Float32Array(LENGTH).fill(value));
    fill(1);
    sum.passed(0, 0);
    await sum.add(0);
    expect(given).toEqual([]);
    fill(2);
    sum.passed(1, 2);
    await device.synchronize();
    await new Promise((resolve) => setImmediate(resolve));
    // Layers 1 and 2 are one bucket, which the gradient of layer 1 completes.
    expect(given).toEqual([]);
    sum.passed(1, 1);
    fill(3);
    await device.synchronize();
    await new Promise((resolve) => setImmediate(resolve));
    expect(given).toEqual([{ length: 500_000, first: 3 }]);
    await sum.add(1);
    await sum.finish();
    expect(given).toEqual([
      { length: 500_000, first: 3 },
      { length: 300_000, first: 4 },
      { length: 7, first: 4 },
    ]);
    parameters.dispose();
  });
});
