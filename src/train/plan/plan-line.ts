/** The line on its plan that a run prints at its beginning. */
import type { Device } from '../../runtime/device.js';
import { gibibytes } from './bytes.js';
import { type MemoryPlan, plannedPeak } from './memory-plan.js';

export interface SettledMemory {
  /** Bytes that may be planned for. */
  readonly usable: number;
  /** Tokens by the key of their section. */
  readonly microBatches: Readonly<Record<string, number>>;
  readonly cacheBytes: number | undefined;
}

/** The share of the memory, micro-batches and rows of samples, in one line. */
export function planLine(
  plan: MemoryPlan,
  device: Pick<Device, 'info' | 'memoryFraction'>,
  { usable, microBatches, cacheBytes }: SettledMemory,
): string {
  const { name, memoryTotal } = device.info();
  const sizes = Object.entries(microBatches).map(([key, tokens]) => `${key.split('.')[0]} ${tokens} tokens`);
  const most = Math.max(0, ...Object.values(microBatches));
  const parts = [
    `memory: ${gibibytes(plannedPeak(plan, most, cacheBytes))} planned of ${gibibytes(usable)} on ${name} ` +
      `(${gibibytes(memoryTotal)}, run.memory_fraction ${device.memoryFraction})`,
    `micro-batches: ${sizes.join(', ')}${plan.checkpointing ? ', with gradient checkpointing' : ''}`,
  ];
  if (plan.sampling && cacheBytes !== undefined)
    parts.push(`samples: up to ${plan.sampling.rows} together, ${gibibytes(cacheBytes)} of keys and values`);
  return parts.join('; ');
}
