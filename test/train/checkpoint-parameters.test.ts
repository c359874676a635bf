// The parameters in a checkpoint are read one after the other: all of them may be more than an array can hold.
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { TrainableParameters } from '../../src/autograd/parameters.js';
import { restoreRoles, writeRunCheckpoint } from '../../src/train/checkpoint.js';
import { openTest } from '../ops/devices.js';
import { temporaryDirectory } from '../weights/temporary-directory.js';

it('parameters of a run come back from a checkpoint, without an array of all', async () => {
  const folder = join(temporaryDirectory(), 'step-1');
  mkdirSync(folder);
  const device = openTest();
  const fresh = (of: (i: number) => number) =>
    new TrainableParameters(
      device,
      ['a', 'b'].map((name, at) => ({
        name,
        shape: [3, 5],
        init: Float32Array.from({ length: 15 }, (_, i) => of(15 * at + i)),
      })),
    );
  const parameters = fresh((i) => Math.fround(Math.sin(i)));
  parameters.values.readFloats = () => Promise.reject(new RangeError('Invalid typed array length'));
  const state = { format: 4, stages: [], artefacts: {} } as unknown as Parameters<
    typeof writeRunCheckpoint
  >[1]['state'];
  await writeRunCheckpoint(folder, { roles: { policy: parameters }, optimizers: {}, state });
  const restored = fresh(() => 0);
  restoreRoles(folder, { policy: restored });
  expect(await restored.values.readFloats()).toEqual(
    Float32Array.from({ length: 30 }, (_, i) => Math.sin(i)),
  );
  for (const each of [parameters, restored]) each.dispose();
  device.dispose();
});
