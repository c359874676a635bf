/** Memory that each role of a run holds, measured while it is created, to compare with the memory plan. */
import type { RunDirectory } from '../../run/directory.js';
import type { Device } from '../../runtime/device.js';
import { type MemoryPlan, plannedPeak } from '../plan/memory-plan.js';

/** Bytes by role. AdamW moments are not included: they live as long as their stage. */
export type HeldMemory = Readonly<Record<string, number>>;

/** Attributes the memory allocated since the last call to a role. */
export function heldMemory(device: Device): { readonly held: HeldMemory; mark(role: string): void } {
  const held: Record<string, number> = {};
  let before = device.stats().liveBytes;
  return {
    held,
    mark(role) {
      const now = device.stats().liveBytes;
      held[role] = now - before;
      before = now;
    },
  };
}

/** The memory that a run holds, and its limits on memory at once. */
export interface RunMemory {
  readonly plan: MemoryPlan;
  readonly held: HeldMemory;
  /** The largest of its stages. */
  readonly microBatchTokens: number;
  readonly cacheBytes: number | undefined;
}

/** Writes memory.json. The peaks of the stages, activations included, are `peak_bytes` in metrics.jsonl. */
export async function writeHeldMemory(
  run: RunDirectory,
  device: Device,
  { plan, held, microBatchTokens, cacheBytes }: RunMemory,
): Promise<void> {
  await run.writeJson('memory.json', {
    device: device.info().name,
    planned_bytes: Object.fromEntries(plan.items.map(({ role, bytes }) => [role, bytes])),
    planned_bytes_per_token: plan.bytesPerToken,
    gradient_checkpointing: plan.checkpointing,
    ...(cacheBytes === undefined ? {} : { planned_cache_bytes: cacheBytes }),
    planned_peak_bytes: plannedPeak(plan, microBatchTokens, cacheBytes),
    held_bytes: held,
  });
}
