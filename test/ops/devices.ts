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
