import { addon } from '../../src/native/addon.js';

/** Models of the GPUs that this build can use here; empty without a GPU or without CUDA in the build. */
export const gpus: readonly string[] = addon().cudaDevices() ?? [];

/** Why the tests of CUDA kernels are skipped, for their title. */
export const skipped = gpus.length > 0 ? '' : ' (skipped: cudaDevices() lists none)';

/** What the emulator (emulator/emulator.h) calls itself: too slow for sizes that fill a GPU. */
export const EMULATED = 'emulated GPU';
