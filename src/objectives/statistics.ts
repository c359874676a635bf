/** Metrics for the log that an objective makes in the same launch as its loss. */
import type { Tensor } from '../runtime/tensor.js';

/** One number per name, on the device until they are read. */
export interface Statistics<Name extends string> {
  readonly names: readonly Name[];
  /** f32 [names] */
  readonly values: Tensor;
}

/** The result of an objective: a loss for `Tape.backward` and the statistics behind it. The caller disposes both. */
export interface Objective<Name extends string> {
  /** f32 [1] */
  readonly loss: Tensor;
  readonly statistics: Statistics<Name>;
}

/** Waits for the launch and names its statistics. */
export async function readStatistics<Name extends string>({
  names,
  values,
}: Statistics<Name>): Promise<Readonly<Record<Name, number>>> {
  const metrics = await values.readFloats();
  return Object.fromEntries(names.map((name, i) => [name, metrics[i]])) as Record<Name, number>;
}
