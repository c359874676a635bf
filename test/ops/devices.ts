import { readModelConfig } from '../../src/architectures/table.js';
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
 * How far a log-prob (or another value of the size of ln V) of an f32 model may be from the same one by other kernels of its
 * device. On the CPU that is `onCpu`, as seen there. On a GPU, of the model's shape alone:
 *
 *     2 · ln V · √((6·layers + 1) · 3²·(width / 2)·2^-48 + 2·layers·2^-44)
 *
 * A sum of `width` terms of either sign, in whatever order, is off by about √(width / 2) · 2^-24 of what it comes to (n roundings
 * of partial sums that grow as √n; Higham and Mary, "A new approach to probabilistic rounding error analysis", SIAM J. Sci.
 * Comput. 41(5), 2019), 3 times that where thousands of values are compared. A value has come through six such sums in a layer
 * (q, k and v; scores; what they weigh; o; gate and up; down) and that of the head, and in a layer through two exponentials
 * (softmax, the activation), which as ex2.approx err by up to 2^-22 (PTX ISA). Errors that know nothing of each other add as
 * squares; there are two kernels; a log-prob is of the size of ln V, that of a uniform distribution. `width` is the longest sum.
 *
 * @param directory the model's
 */
export function f32Bound(device: Pick<Device, 'info'>, onCpu: number, directory: string): number {
  if (!device.info().isa.startsWith('sm_')) return onCpu;
  const { numLayers, hiddenSize, vocabSize, source } = readModelConfig(directory);
  const width = Math.max(hiddenSize, Number(source.intermediate_size ?? source.ffn_dim ?? 0));
  const sums = (6 * numLayers + 1) * 9 * (width / 2) * 2 ** -48;
  return 2 * Math.log(vocabSize) * Math.sqrt(sums + 2 * numLayers * 2 ** -44);
}

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
