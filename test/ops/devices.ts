import { addon } from '../../src/native/addon.js';
import { type Device, type DeviceOptions, openDevice } from '../../src/runtime/device.js';
import { Tensor } from '../../src/runtime/tensor.js';

const GPU = 'cuda:0';

/**
 * Devices of the op tests: the instruction sets that this machine has and the build holds, or the one that STEPTRAIN_ISA
 * forces, and cuda:0 if there is a GPU.
 */
export const isas: readonly string[] = [
  ...(process.env.STEPTRAIN_ISA ? [process.env.STEPTRAIN_ISA] : addon().isas()),
  ...((addon().cudaDevices() ?? []).length > 0 ? [GPU] : []),
];

/** Whether `isa` is a GPU: only the CPU has threads, regions and packed panels. */
export const onGpu = (isa: string): boolean => isa === GPU;

/** A device for tests, by default STEPTRAIN_TEST_DEVICE or cpu; dispose it in afterAll. */
export function openTest(isa?: string, options: DeviceOptions = {}): Device {
  if ((isa ?? process.env.STEPTRAIN_TEST_DEVICE) === GPU) return openDevice(GPU);
  return openDevice('cpu', { ...options, ...(isa === undefined ? {} : { isa }) });
}

/**
 * How far a value of an f32 model may be from the same one by other kernels of its device, where `onCpu` is far enough on the
 * CPU. There a function and a sum each err by about half a unit of the last place, 2^-24 of the value; a GPU's exponentials are
 * ex2.approx, which errs by up to 2^-22 (PTX ISA): four times as far.
 */
export const f32Bound = (device: Device, onCpu: number): number =>
  device.info().isa.startsWith('sm_') ? 4 * onCpu : onCpu;

/** Calls an op by names that the types do not check; returns its outputs. */
export function call(
  device: Device,
  op: string,
  args: Readonly<Record<string, unknown>>,
): Record<string, Tensor> {
  const ops = device.ops as unknown as Record<string, (given: typeof args) => Record<string, unknown>>;
  const made = Object.entries(ops[op]?.(args) ?? {});
  return Object.fromEntries(made.filter((entry): entry is [string, Tensor] => entry[1] instanceof Tensor));
}
