import { afterEach, expect, it, vi } from 'vitest';
import { chosenDevice, refuseWithoutCuda } from '../../src/runtime/chosen-device.js';

afterEach(() => vi.restoreAllMocks());

const gpus = (devices: string[] | undefined, obstacle: string | undefined) => ({
  cudaDevices: () => devices,
  cudaObstacle: () => obstacle,
});

const OLD =
  'its NVIDIA driver 470.57.02 is for CUDA 11.4, and this addon was built with CUDA 13.0, which needs driver 580 or newer';

it.each([
  ['cpu', gpus(['H100'], ''), 'cpu', 0],
  ['cuda:1', gpus([], OLD), 'cuda:1', 0],
  ['auto', gpus(['H100'], ''), 'cuda:0', 0],
  ['auto', gpus(undefined, undefined), 'cpu', 0],
  ['auto', gpus([], 'this machine has no NVIDIA driver'), 'cpu', 0],
  ['auto', gpus([], 'no NVIDIA GPU is visible to this process'), 'cpu', 0],
  ['auto', gpus([], OLD), 'cpu', 1],
])('%s with %j is %s', (name, native, expected, warnings) => {
  const error = vi.spyOn(console, 'error').mockImplementation(() => {});
  expect(chosenDevice(name, native, () => false)).toBe(expected);
  expect(error).toHaveBeenCalledTimes(warnings);
  if (warnings > 0)
    expect(error.mock.calls[0]?.[0]).toBe(`running on the CPU, since no GPU can be used: ${OLD}`);
});

it('auto says that there is a GPU where the addon has no CUDA, as one for the CPU alone', () => {
  const error = vi.spyOn(console, 'error').mockImplementation(() => {});
  expect(chosenDevice('auto', gpus(undefined, undefined), () => true)).toBe('cpu');
  expect(error.mock.calls).toEqual([
    [expect.stringMatching(/^running on the CPU, since .* no CUDA kernels; .* npx steptrain build --cuda$/)],
  ]);
  chosenDevice('cpu', gpus(undefined, undefined), () => true);
  expect(error).toHaveBeenCalledTimes(1);
});

it('a GPU is refused where the addon has no CUDA, by what a user of the package can do', () => {
  for (const name of ['cuda', 'cuda:3'])
    expect(() => refuseWithoutCuda(name, gpus(undefined, undefined))).toThrow(
      expect.objectContaining({
        code: 'E_UNSUPPORTED',
        message: expect.stringMatching(
          `^device '${name}' needs an addon built with CUDA, which this one is not; open 'cpu', .*nvcc.* npx steptrain build --cuda .*npx steptrain doctor`,
        ),
      }),
    );
  refuseWithoutCuda('cuda', gpus([], OLD));
  refuseWithoutCuda('cpu', gpus(undefined, undefined));
});
