/** Resolves the device `auto`: `run.device` of a recipe, `--device` of a command. */
import { existsSync } from 'node:fs';
import { addon, type NativeAddon } from '../native/addon.js';
import { StepTrainError } from '../native/errors.js';
import { toLog } from '../terminal/log.js';

type Gpus = Pick<NativeAddon, 'cudaDevices' | 'cudaObstacle'>;

/** Whether the driver shows this process a GPU of NVIDIA's, as it does in a container and under WSL 2. */
export const nvidiaGpu = (): boolean =>
  existsSync('/dev/nvidiactl') || existsSync('/usr/lib/wsl/lib/libcuda.so.1');

/**
 * `auto` is the first GPU, where there is one that can be used. A GPU that cannot, for its old driver or an addon without CUDA
 * say, is not passed over in silence.
 */
export function chosenDevice(name: string, gpus: Gpus = addon(), hasGpu: () => boolean = nvidiaGpu): string {
  if (name !== 'auto') return name;
  if (gpus.cudaDevices()?.length) return 'cuda:0';
  if (gpus.cudaDevices() === undefined && hasGpu())
    toLog(
      'running on the CPU, since the addon has no CUDA kernels; to compile them for the GPU here, with nvcc on the path: npx steptrain build --cuda',
    );
  const obstacle = gpus.cudaObstacle();
  if (obstacle && !/has no NVIDIA driver|no NVIDIA GPU is visible/.test(obstacle))
    toLog(`running on the CPU, since no GPU can be used: ${obstacle}`);
  return 'cpu';
}

/** A GPU where the addon was compiled without CUDA, as where there was no nvcc. */
export function refuseWithoutCuda(name: string, gpus: Pick<NativeAddon, 'cudaDevices'> = addon()): void {
  if (!/^cuda(?::|$)/.test(name) || gpus.cudaDevices() !== undefined) return;
  const hint =
    "open 'cpu', install a package with CUDA kernels, or compile them here, with nvcc on the path: npx steptrain build --cuda (npx steptrain doctor shows devices and drivers)";
  throw new StepTrainError(
    'E_UNSUPPORTED',
    `device '${name}' needs an addon built with CUDA, which this one is not; ${hint}`,
    { hint },
  );
}
