import type { Device } from '#src/runtime/device.js';

/** Follows the memory of `count` rounds: max live tensors and MiB in the first, second and last tenth. */
export function memoryByTenths(device: Device, count: number) {
  const tenth = Math.max(1, Math.floor(count / 10));
  const metrics: Record<string, number> = {};
  let max: Record<string, number> = {};
  return {
    metrics,
    /** After round `index`, from 0. */
    note(index: number): void {
      const { tensors, liveBytes, reservedBytes } = device.stats();
      const now = {
        tensors,
        'live MiB': liveBytes / 2 ** 20,
        'reserved MiB': reservedBytes / 2 ** 20,
        'resident MiB': process.memoryUsage.rss() / 2 ** 20,
      };
      for (const [name, value] of Object.entries(now)) max[name] = Math.max(max[name] ?? 0, value);
      if ((index + 1) % tenth > 0) return;
      const which = (index + 1) / tenth;
      if ([1, 2, 10].includes(which))
        for (const [name, value] of Object.entries(max)) metrics[`${name}, tenth ${which}`] = value;
      max = {};
    },
  };
}
