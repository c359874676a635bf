import { describe, expect, test, vi } from 'vitest';
import { addon } from '../../src/native/addon.js';
import type { StepTrainError } from '../../src/native/errors.js';
import { openDevice } from '../../src/runtime/device.js';
import { EMULATED, gpus } from './gpu.js';

function refusal(name: string): StepTrainError {
  try {
    openDevice(name).dispose();
  } catch (error) {
    return error as StepTrainError;
  }
  throw new Error(`${name} opened`);
}

describe('opening cuda:0', () => {
  test('cudaDevices() is a list in a build with CUDA, and undefined in one without', () => {
    const list = addon().cudaDevices();
    expect(list === undefined || Array.isArray(list)).toBe(true);
  });

  test.skipIf(gpus.length > 0)(
    'without a GPU or without CUDA in the build, cuda is refused in one sentence',
    () => {
      for (const name of ['cuda', 'cuda:0', 'cuda:3']) {
        const error = refusal(name);
        expect(error.code).toBe('E_UNSUPPORTED');
        expect(error.message).toMatch(
          /^device 'cuda(:\d+)?' (cannot be opened: .+|needs an addon built with CUDA, .+)$/,
        );
        expect(error.message).not.toContain('\n');
        expect(error.hint).not.toBe('');
      }
    },
  );

  test.skipIf(gpus.length === 0)('a GPU number that does not exist is refused', () => {
    const error = refusal(`cuda:${gpus.length}`);
    expect(error.code).toBe('E_UNSUPPORTED');
    expect(error.message).toBe(
      `device 'cuda:${gpus.length}' does not exist: this process sees ${gpus.length} GPU${gpus.length > 1 ? 's' : ''}, ` +
        `the last is cuda:${gpus.length - 1}`,
    );
  });

  test.skipIf(gpus.length === 0)('a name that no successor of a kernel has is refused', () => {
    vi.stubEnv('STEPTRAIN_KERNELS', 'attention_backward,tiles');
    const error = refusal('cuda:0');
    vi.unstubAllEnvs();
    expect(error.code).toBe('E_RANGE');
    expect(error.message).toBe(
      "STEPTRAIN_KERNELS names 'tiles'; expected verified, new, or a list of attention_backward, lora_gradients, stream_k",
    );
  });

  test.skipIf(gpus[0] !== EMULATED)('the message distinguishes an old driver from a missing one', () => {
    for (const [driver, reason] of [
      [
        '12020',
        / is for CUDA 12\.2, and this addon was built with CUDA 13\.0, which needs driver 580 or newer; .*rebuild/,
      ],
      ['0', /this machine has no NVIDIA driver; open device 'cpu'/],
    ] as const) {
      vi.stubEnv('STEPTRAIN_EMULATED_DRIVER', driver);
      try {
        expect(addon().cudaDevices()).toEqual([]);
        expect(addon().cudaObstacle()).toBeTruthy();
        const error = refusal('cuda');
        expect(error.code).toBe('E_UNSUPPORTED');
        expect(error.message).toMatch(reason);
      } finally {
        vi.unstubAllEnvs();
      }
    }
    expect(addon().cudaObstacle()).toBe('');
  });

  test.skipIf(gpus.length === 0)(
    'an allocation beyond the memory is refused, and the device still works',
    async () => {
      const device = openDevice('cuda:0');
      let refused: StepTrainError | undefined;
      try {
        device.empty([2 ** 41]);
      } catch (error) {
        refused = error as StepTrainError;
      }
      expect(refused?.code).toBe('E_MEMORY');
      const { y } = device.ops.scale({ x: device.tensor(Float32Array.of(1, 2)), factor: 3 });
      expect(Array.from(await y.read())).toEqual([3, 6]);
      device.dispose();
    },
  );

  test.skipIf(gpus.length < 2)('two GPUs work at the same time', async () => {
    const devices = [openDevice('cuda:0'), openDevice('cuda:1')];
    const outputs = devices.map((device, i) => {
      const x = device.tensor(Float32Array.of(1, 2, 3));
      return device.ops.scale({ x, factor: i + 2 }).y;
    });
    expect(Array.from(await outputs[0]!.read())).toEqual([2, 4, 6]);
    expect(Array.from(await outputs[1]!.read())).toEqual([3, 6, 9]);
    expect(devices.map((device) => device.info().name)).toEqual(['cuda:0', 'cuda:1']);
    for (const device of devices) device.dispose();
  });
});
