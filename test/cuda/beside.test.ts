// Bytes that travel on a stream beside the compute stream: behind what was queued before, and before what follows `arrived`. On the
// emulator a library stands for NCCL, and the second stream runs as early as it may, or as late; a GPU needs libnccl.so.2.
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { TrainableParameters } from '../../src/autograd/parameters.js';
import type { Carrier } from '../../src/cluster/carriers.js';
import { addFloats, addTree } from '../../src/cluster/shards.js';

import { ShardedLayers } from '../../src/models/sharded-layers.js';
import { addon } from '../../src/native/addon.js';
import { type Device, openDevice } from '../../src/runtime/device.js';
import type { Tensor } from '../../src/runtime/tensor.js';
import { overShards } from '../../src/train/sums/data-parallel.js';
import type { WeightSpec } from '../../src/weights/modules.js';
import { compileMockNccl, hasCompiler } from '../carriers/nccl-library.js';
import { fellows } from '../cluster/fellows.js';
import { random } from '../ops/numbers.js';
import { EMULATED, gpus, skipped } from './gpu.js';

const isEmulated = gpus[0] === EMULATED;
const folder = mkdtempSync(join(tmpdir(), 'steptrain-beside-cuda-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));
const hasNccl =
  gpus.length > 0 &&
  (isEmulated
    ? hasCompiler
    : await addon()
        .ncclId('')
        .then(
          () => true,
          () => false,
        ));

const N = 3000;
const sameBytes = (a: Float32Array, b: Float32Array) => Buffer.from(a.buffer).equals(Buffer.from(b.buffer));

describe.skipIf(!hasNccl).each(isEmulated ? ['early', 'late'] : ['as it likes'])(
  `a stream beside that of cuda:0${skipped}, which runs %s`,
  (second) => {
    let library = '';
    let device: Device;
    let communicator: number;
    beforeAll(() => {
      if (isEmulated) library = compileMockNccl(folder);
    });
    beforeEach(async () => {
      process.env.STEPTRAIN_EMULATED_SECOND = second;
      const id = await addon().ncclId(library);
      ({ communicator } = await addon().openNccl(library, id, 0, 1, 0));
      device = openDevice('cuda:0');
    });
    afterEach(async () => {
      device.dispose();
      await addon().closeCarrier(communicator);
      delete process.env.STEPTRAIN_EMULATED_SECOND;
    });

    it.each(['all_gather', 'all_to_all'] as const)(
      'sends by %s what was computed before, while other kernels run',
      async (op) => {
        const values = random(N, 1);
        const x = device.tensor(values);
        const { y: doubled } = device.ops.scale({ x, factor: 2 });
        const y = device.empty([1, N]);
        const given = op === 'all_gather' ? doubled : doubled.view(0, [1, N]);
        device.ops[op]({ x: given, y, communicator, beside: true });
        const { y: other } = device.ops.scale({ x: doubled, factor: 3 });
        device.ops.arrived({ y, communicator });
        const { y: after } = device.ops.scale({ x: y, factor: 0.5 });
        // Its memory is free for what comes now.
        device.ops.fill({ x: doubled, value: -1 });
        expect(sameBytes(await after.readFloats(), values)).toBe(true);
        const times = values.map((value) => Math.fround(2 * value) * 3);
        expect(sameBytes(await other.readFloats(), times)).toBe(true);
      },
    );

    it('is waited for by a collective that is not beside, and by the end', async () => {
      const values = random(N, 2);
      const x = device.tensor(values);
      const [first, again] = [device.empty([1, N]), device.empty([1, N])];
      device.ops.all_gather({ x, y: first, communicator, beside: true });
      device.ops.all_gather({ x: first.view(0, [N]), y: again, communicator });
      expect(sameBytes(await again.readFloats(), values)).toBe(true);
      device.ops.all_gather({ x, y: again, communicator, beside: true });
      device.dispose();
    });

    it('is refused in a capture', () => {
      const [x, y] = [device.zeros([N]), device.empty([1, N])];
      expect(() => device.capture(() => device.ops.all_gather({ x, y, communicator, beside: true }))).toThrow(
        /all_gather cannot be captured/,
      );
      expect(() => device.capture(() => device.ops.arrived({ y, communicator }))).toThrow(
        /arrived cannot be captured/,
      );
    });

    it('carries gradients during the backward pass, with the bits of their tree', async () => {
      const sizes = [300_000, 5000, 270_000];
      const parameters = new TrainableParameters(
        device,
        sizes.map((size, layer) => ({
          name: `model.layers.${layer}.w`,
          shape: [size],
          init: new Float32Array(size),
        })),
      );
      const length = sizes.reduce((sum, size) => sum + size, 0);
      const gradient = (shard: number) =>
        Float32Array.from({ length }, (_, i) => Math.sin(shard * 97 + (i % 1013)) * 10 ** ((shard + i) % 6));
      const [cluster] = fellows(1);
      const carrier = { name: 'nccl', communicator } as Carrier;
      const shards = [0, 1, 2];
      await overShards(shards, [parameters], { shards: 3, cluster, carrier }, async ([shard], passed) => {
        parameters.grads.write(gradient(shard as number));
        for (const layer of [2, 1, 0]) await passed(layer);
        return [];
      });
      const all = shards.map((first) => ({ first, count: 1, values: gradient(first) }));
      expect(sameBytes(await parameters.grads.readFloats(), addTree(all, addFloats))).toBe(true);
      parameters.dispose();
    });

    it('gathers layers ahead of their use', async () => {
      const shape = [64, 65];
      const specs = [0, 1, 2].map((layer) => ({
        name: `model.layers.${layer}.w.weight`,
        shape,
        kind: 'linear',
      }));
      const holders = { communicator, rank: 0, size: 1, ahead: true };
      const layers = new ShardedLayers(device, 'f32', specs as unknown as WeightSpec[], holders);
      const weights = specs.map((_, layer) => random(64 * 65, layer));
      for (const [layer, { name }] of specs.entries()) {
        const value = device.tensor(weights[layer] as Float32Array, shape);
        layers.store(name, value);
        value.dispose();
      }
      for (const layer of [0, 1, 2, 2, 1, 0, 0, 2, 1]) {
        const name = specs[layer]?.name as string;
        const read = layers.during(layer, () => (layers.get(name) as { value: Tensor }).value.readFloats());
        // Memory that was gathered into is taken again.
        device.scope(() => device.ops.fill({ x: device.empty([64 * 65]), value: -1 }));
        expect(sameBytes(await read, weights[layer] as Float32Array)).toBe(true);
      }
      layers.dispose();
    });
  },
);
