import { afterAll, beforeAll } from 'vitest';
import { type Device, openDevice } from '../../src/runtime/device.js';
import type { DType, Tensor, TypedArray } from '../../src/runtime/tensor.js';

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

/** A tensor to be made on each device. `offset`: elements that it lies past the start of its buffer. */
export interface Given {
  readonly values: TypedArray;
  readonly shape: readonly number[];
  readonly dtype?: DType;
  readonly offset?: number;
}

export interface Call {
  readonly op: string;
  readonly tensors: Readonly<Record<string, Given | undefined>>;
  readonly scalars?: Readonly<Record<string, number>>;
  readonly wanted?: readonly string[];
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

/** Runs one op and reads everything that it wrote: values, with bf16 as floats. */
export async function results(device: Device, call: Call): Promise<Record<string, number[]>> {
  const tensors: Record<string, Tensor | undefined> = {};
  for (const [name, given] of Object.entries(call.tensors)) {
    tensors[name] = given && made(device, given);
  }
  const outputs = device.op(call.op, tensors, call.scalars ?? {}, call.wanted ?? []);
  const read: Record<string, number[]> = {};
  for (const name of call.written ?? []) read[name] = Array.from(await tensors[name]!.read());
  for (const [name, tensor] of Object.entries(outputs)) read[name] = Array.from(await tensor.read());
  return read;
}
