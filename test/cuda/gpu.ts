import { addon } from '../../src/native/addon.js';
import type { Device } from '../../src/runtime/device.js';

/** Models of the GPUs that this build can use here; empty without a GPU or without CUDA in the build. */
export const gpus: readonly string[] = addon().cudaDevices() ?? [];

/** Why the tests of CUDA kernels are skipped, for their title. */
export const skipped = gpus.length > 0 ? '' : ' (skipped: cudaDevices() lists none)';

/**
 * Whether a row of x·Wᵀ has the same bits among `a` rows as among `b`: GPUs have other kernels for up to 256 rows, and
 * Hopper others for 17 rows and more.
 */
export const roundAlike = (device: Device, a: number, b: number): boolean => {
  const { isa } = device.info();
  if (!isa.startsWith('sm_')) return true;
  const borders = isa === 'sm_90' ? [16, 256] : [256];
  return borders.every((border) => a > border === b > border);
};

/**
 * The same of dy·W. On Hopper up to 16 rows are multiplied by mma.sync and more by wgmma, which need not round alike.
 */
export const gradientsRoundAlike = (device: Device, a: number, b: number): boolean =>
  device.info().isa !== 'sm_90' || a > 16 === b > 16;

/** The emulator's name (emulator/emulator.h); it is too slow for sizes that fill a GPU. */
export const EMULATED = 'emulated GPU';

/** `size` on the CPU and on a GPU, `small` on the emulator, which takes a thousand times as long. */
export const unlessEmulated = (isa: string, size: number, small: number): number =>
  isa === 'cuda:0' && gpus[0] === EMULATED ? small : size;
