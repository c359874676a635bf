import { Tape } from '../../src/autograd/tape.js';
import { type Objective, readStatistics } from '../../src/objectives/statistics.js';
import type { Device } from '../../src/runtime/device.js';
import type { Tensor } from '../../src/runtime/tensor.js';

/**
 * Runs an objective on a tape that watches `inputs` (each f32 [n]) and carries its loss back with the weight `seed`.
 * Fails unless all its memory is freed.
 */
export async function throughTape<Input extends string, Stat extends string>(
  device: Device,
  inputs: Readonly<Record<Input, readonly number[]>>,
  objective: (tensors: Readonly<Record<Input, Tensor>>) => Objective<Stat>,
  { seed = 1, shapes = {} }: { seed?: number; shapes?: Partial<Record<Input, readonly number[]>> } = {},
): Promise<{
  readonly loss: number;
  readonly statistics: Readonly<Record<Stat, number>>;
  readonly gradients: Readonly<Record<Input, number[] | undefined>>;
}> {
  const before = device.stats().liveBytes;
  const names = Object.keys(inputs) as Input[];
  const tensors = Object.fromEntries(
    names.map((name) => [name, device.tensor(Float32Array.from(inputs[name]), shapes[name])]),
  ) as Record<Input, Tensor>;
  const tape = new Tape(device);
  for (const tensor of Object.values<Tensor>(tensors)) tape.watch(tensor);
  const made = device.scope(() => tape.run(() => objective(tensors)));
  tape.backward([[made.loss, seed]]);
  const loss = (await made.loss.readFloats())[0] as number;
  const statistics = await readStatistics(made.statistics);
  const gradients = {} as Record<Input, number[] | undefined>;
  for (const name of names) {
    const gradient = tape.takeGradient(tensors[name]);
    gradients[name] = gradient && Array.from(await gradient.readFloats());
    gradient?.dispose();
  }
  tape.dispose();
  for (const tensor of [made.loss, made.statistics.values, ...Object.values<Tensor>(tensors)])
    tensor.dispose();
  await device.synchronize();
  const kept = device.stats().liveBytes - before;
  if (kept !== 0) throw new Error(`the objective left ${kept} bytes behind`);
  return { loss, statistics, gradients };
}

/** A tensor in the scope of the running objective. */
export function vector(device: Device, values: readonly number[]): Tensor {
  return device.tensor(Float32Array.from(values));
}
