/** What the device did at best in this run: the yardstick of the column "of limit". */
import type { FloatType, Group, RivalCase } from './cases.js';
import { limitGroups } from './groups.js';
import type { CaseResult, Measured } from './pairs.js';

export interface Limits {
  /** Operations per second of the largest plain product, by type. */
  readonly flops: Readonly<Partial<Record<FloatType, number>>>;
  /** Bytes per second of a copy, read and written ones both counted. */
  readonly bytes: number;
}

export async function measureLimits(
  onGpu: boolean,
  measure: (group: Group) => Promise<readonly CaseResult[]>,
): Promise<Limits> {
  const flops: Partial<Record<FloatType, number>> = {};
  let bytes = 0;
  for (const group of limitGroups(onGpu)) {
    for (const { item, ours, rival } of await measure(group)) {
      const contestants = [ours, ...Object.values(rival)].filter(
        (one): one is Measured => typeof one !== 'string',
      );
      const seconds = Math.min(...contestants.map(({ spread }) => spread.median));
      if (item.suite === 'gemm') flops[item.dtype] = item.flops / seconds;
      else bytes = item.bytes / seconds;
    }
  }
  return { flops, bytes };
}

/** The min time that the limits allow a case, divided by the time it took; undefined if no limit is known. */
export function shareOfLimit(
  { flops, bytes, dtype }: RivalCase,
  seconds: number,
  limits: Limits,
): number | undefined {
  const peak = flops > 0 ? limits.flops[dtype] : Number.POSITIVE_INFINITY;
  if (!peak || !(limits.bytes > 0)) return undefined;
  return Math.max(flops / peak, bytes / limits.bytes) / seconds;
}
