import { addon } from '../../src/native/addon.js';
import { type Device, type DeviceOptions, openDevice } from '../../src/runtime/device.js';
import { Tensor } from '../../src/runtime/tensor.js';

const GPU = 'cuda:0';

/**
 * What op tests run on: the instruction sets of this machine, or the one that STEPTRAIN_ISA forces, and cuda:0 where
 * there is a GPU.
 */
export const isas: readonly string[] = [
  ...(process.env.STEPTRAIN_ISA ? [process.env.STEPTRAIN_ISA] : addon().isas()),
  ...((addon().cudaDevices() ?? []).length > 0 ? [GPU] : []),
];

/** Whether `isa` is a GPU: threads, regions and packed panels are the CPU's alone. */
export const onGpu = (isa: string): boolean => isa === GPU;

/** A device for tests, by default STEPTRAIN_TEST_DEVICE or cpu; dispose it in afterAll. */
export function openTest(isa?: string, options: DeviceOptions = {}): Device {
  if ((isa ?? process.env.STEPTRAIN_TEST_DEVICE) === GPU) return openDevice(GPU);
  return openDevice('cpu', { ...options, ...(isa === undefined ? {} : { isa }) });
}

/** Calls an op whose name or arguments the types do not know; gives the outputs that there are. */
export function call(
  device: Device,
  op: string,
  args: Readonly<Record<string, unknown>>,
): Record<string, Tensor> {
  const ops = device.ops as unknown as Record<string, (given: typeof args) => Record<string, unknown>>;
  const made = Object.entries(ops[op]?.(args) ?? {});
  return Object.fromEntries(made.filter((entry): entry is [string, Tensor] => entry[1] instanceof Tensor));
}

/** Reproducible numbers in [-1, 1): a 32-bit mix of seed and index, independent of the library's own generator. */
export function random(length: number, seed = 1): Float32Array {
  const values = new Float32Array(length);
  for (let i = 0; i < length; i++) {
    let h = Math.imul(i + 1, 0x9e3779b1) ^ Math.imul(seed, 0x85ebca77);
    h = Math.imul(h ^ (h >>> 16), 0x7feb352d);
    h = Math.imul(h ^ (h >>> 15), 0x846ca68b);
    h ^= h >>> 16;
    values[i] = (h >>> 0) / 2 ** 31 - 1;
  }
  return values;
}

/** Largest |a - b|; NaN anywhere gives NaN, so that comparisons with it fail. */
export function maxDifference(a: ArrayLike<number>, b: ArrayLike<number>): number {
  if (a.length !== b.length) throw new Error(`lengths differ: ${a.length} and ${b.length}`);
  let worst = 0;
  for (let i = 0; i < a.length; i++) {
    const difference = Math.abs((a[i] as number) - (b[i] as number));
    if (Number.isNaN(difference)) return difference;
    worst = Math.max(worst, difference);
  }
  return worst;
}
