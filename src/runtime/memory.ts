/** The share of a device's memory that a program plans for. */

/**
 * Default share of a device's memory that a program plans for, as vLLM's `gpu_memory_utilization`: memory that others
 * hold or have planned for comes off what is free.
 */
export const MEMORY_FRACTION = 0.9;

/** Share of the free memory that a plan may use; the rest is for fragmentation. */
const USABLE = 0.9;

/** Bytes that a plan may use, of `total` bytes with `free` of them free. */
export function usableMemory(
  { total, free }: { readonly total: number; readonly free: number },
  fraction: number,
): number {
  return Math.min(fraction * total, USABLE * free);
}

interface Measured {
  readonly memoryFraction: number;
  info(): { readonly memoryTotal: number; readonly memoryFree: number };
  stats(): { readonly liveBytes: number };
}

/**
 * Bytes that may still be planned for on `device`, in addition to its existing tensors, within its `memoryFraction`.
 */
export function spareMemory(device: Measured): number {
  const { memoryTotal, memoryFree } = device.info();
  const left = device.memoryFraction * memoryTotal - device.stats().liveBytes;
  return Math.max(0, Math.min(left, USABLE * memoryFree));
}
