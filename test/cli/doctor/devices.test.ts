import { expect, it } from 'vitest';
import { gpuRows } from '../../../src/cli/doctor/devices.js';

it.each([
  [undefined, undefined, false, 'not in this build'],
  [
    undefined,
    undefined,
    true,
    'not in this build; for the GPU here, with nvcc on the path: npx steptrain build --cuda',
  ],
  [
    [],
    'no NVIDIA GPU is visible to this process',
    true,
    'built in, but no NVIDIA GPU is visible to this process',
  ],
])('of CUDA, devices %j, obstacle %j and a GPU: %s', (devices, obstacle, hasGpu, expected) => {
  expect(gpuRows(devices, obstacle, hasGpu)).toEqual([['cuda', expected]]);
});
