import { expect, test } from 'vitest';
import { addon, COMMAND } from '../../src/native/addon.js';

test('the typed mirror names exactly what the addon exports', () => {
  const native = addon();
  expect(Object.keys(native).sort()).toEqual(
    [
      'Device',
      'cancelCarrier',
      'closeCarrier',
      'commandLength',
      'cudaDevices',
      'cudaObstacle',
      'initialize',
      'isas',
      'ncclId',
      'openNccl',
      'openPlugin',
      'openShared',
      'signatures',
      'unbuiltIsas',
    ].sort(),
  );
  const methods = Object.getOwnPropertyNames(native.Device.prototype).filter(
    (name) => name !== 'constructor',
  );
  expect(methods.sort()).toEqual(
    [
      'allocate',
      'beginCapture',
      'dispose',
      'download',
      'endCapture',
      'enqueue',
      'info',
      'newPool',
      'release',
      'releaseGraph',
      'releasePool',
      'replay',
      'resetPeak',
      'scope',
      'stats',
      'sumAcross',
      'synchronize',
      'upload',
      'view',
    ].sort(),
  );
  expect(native.commandLength).toBe(COMMAND.outputs + 6 * 8);
});

test('every signature has distinct names and fits the command array', () => {
  for (const op of addon().signatures()) {
    const tensors = [...op.inputs, ...op.outputs];
    const names = [...tensors, ...op.scalars].map(({ name }) => name);
    expect(new Set(names).size, op.text).toBe(names.length);
    expect(tensors.length).toBeLessThanOrEqual(COMMAND.scalars - COMMAND.tensors);
    expect(op.outputs.length).toBeLessThanOrEqual(8);
    expect(op.scalars.length).toBeLessThanOrEqual(COMMAND.number - COMMAND.scalars);
  }
});

test.skipIf(addon().cudaDevices() !== undefined)(
  'an addon without CUDA names a command that users have',
  () => {
    const { Device, commandLength } = addon();
    const open = () => new Device('cuda:0', 1, 'portable', undefined, new Float64Array(commandLength));
    expect(open).toThrow(/needs an addon built with CUDA/);
    expect(open).toThrow(
      expect.objectContaining({ hint: expect.stringContaining('npx steptrain build --cuda') }),
    );
  },
);
