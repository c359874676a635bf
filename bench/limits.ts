/** What the device did at best in this run: the yardstick of the column "of limit". */
import type { FloatType, Group, RivalCase } from './cases.js';
import { limitGroups } from './groups.js';
import type { CaseResult, Measured } from './pairs.js';

export interface Limits {
  /** Operations per second of the largest plain product, by type. */
  readonly flops: Readonly<Partial<Record<FloatType, number>>>;
  /** Bytes per second of a copy, read and written ones both counted. */
  readonly bytes: number;
  /** Bytes per second of reading alone, which is what a step of generation does. */
  readonly readBytes: number;
}

export async function measureLimits(
  onGpu: boolean,
  measure: (group: Group) => Promise<readonly CaseResult[]>,
): Promise<Limits> {
  const results: CaseResult[] = [];
  for (const group of limitGroups(onGpu)) results.push(...(await measure(group)));
  return limitsOf(results);
}

/**
 * By whichever side was faster. What is not among `results` is as in `before`. f32 holds the products of bf16, so that where a
 * processor multiplies no bf16, its limit is that of f32 and not what one of the two makes of it.
 */
export function limitsOf(results: readonly CaseResult[], before?: Limits): Limits {
  const flops: Partial<Record<FloatType, number>> = { ...before?.flops };
  let { bytes, readBytes } = before ?? { bytes: 0, readBytes: 0 };
  for (const { item, ours, rival } of results) {
    const contestants = [ours, ...Object.values(rival)].filter(
      (one): one is Measured => typeof one !== 'string',
    );
    const seconds = Math.min(...contestants.map(({ spread }) => spread.median));
    if (item.suite === 'gemm') flops[item.dtype] = item.flops / seconds;
    else if (item.suite === 'kernels' && item.op === 'finite') readBytes = item.bytes / seconds;
    else bytes = item.bytes / seconds;
  }
  const { f32 = 0, bf16 = 0 } = flops;
  if (f32 > bf16 && bf16 > 0) flops.bf16 = f32;
  return { flops, bytes, readBytes };
}

/** The min time that the limits allow a case, divided by the time it took; undefined if no limit is known. */
export function shareOfLimit(
  { suite, flops, bytes, dtype }: RivalCase,
  seconds: number,
  limits: Limits,
): number | undefined {
  const peak = flops > 0 ? limits.flops[dtype] : Number.POSITIVE_INFINITY;
  const rate = suite === 'prefill' || suite === 'decode' ? limits.readBytes : limits.bytes;
  if (!peak || !(rate > 0)) return undefined;
  return Math.max(flops / peak, bytes / rate) / seconds;
}
