import { afterAll, beforeAll, vi } from 'vitest';
import { type Device, openDevice } from '../../src/runtime/device.js';
import type { DType, Tensor, TypedArray } from '../../src/runtime/tensor.js';
import { call } from '../ops/devices.js';

/** Opens cuda:0 and the CPU for the tests of a `describe`, and disposes them after. */
export function openBoth(opened: (gpu: Device, cpu: Device) => void): void {
  const devices: Device[] = [];
  beforeAll(() => {
    const [gpu, cpu] = [openDevice('cuda:0'), openDevice('cpu')];
    devices.push(gpu, cpu);
    opened(gpu, cpu);
  });
  afterAll(() => {
    for (const device of devices) device.dispose();
  });
}

/** cuda:0 with these kernels, whatever STEPTRAIN_KERNELS says. */
export function withKernels(kernels: string): Device {
  vi.stubEnv('STEPTRAIN_KERNELS', kernels);
  const device = openDevice('cuda:0');
  vi.unstubAllEnvs();
  return device;
}

/** A tensor to create on each device. `offset`: its distance in elements from the start of its buffer. */
export interface Given {
  readonly values: TypedArray;
  readonly shape: readonly number[];
  readonly dtype?: DType;
  readonly offset?: number;
}

export interface Call {
  readonly op: string;
  readonly tensors: Readonly<Record<string, Given | undefined>>;
  /** Scalars, and `true` for optional outputs. */
  readonly settings?: Readonly<Record<string, number | boolean | string>>;
  /** Inputs that the op writes. */
  readonly written?: readonly string[];
}

export function made(device: Device, { values, shape, dtype, offset = 0 }: Given): Tensor {
  if (offset === 0) return dtype ? device.tensor(values, shape, dtype) : device.tensor(values, shape);
  const type = dtype ?? 'f32';
  const whole = device.empty([values.length + offset], type);
  const tensor = whole.view(offset, shape);
  tensor.write(values);
  return tensor;
}

/** Runs one op and reads all its results; bf16 as floats. */
export async function results(
  device: Device,
  { op, tensors: given, settings, written }: Call,
): Promise<Record<string, number[]>> {
  const tensors: Record<string, Tensor | undefined> = {};
  for (const [name, tensor] of Object.entries(given)) tensors[name] = tensor && made(device, tensor);
  const outputs = call(device, op, { ...tensors, ...settings });
  const read: Record<string, number[]> = {};
  for (const name of written ?? []) read[name] = Array.from(await tensors[name]!.read());
  for (const [name, tensor] of Object.entries(outputs)) read[name] = Array.from(await tensor.read());
  return read;
}
