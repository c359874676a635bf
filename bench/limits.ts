/** What the device can do at best: the yardstick of the column "of limit". */
import type { FloatType, Group, RivalCase } from './cases.js';
import { limitGroups } from './groups.js';
import type { CaseResult, Measured } from './pairs.js';
import { measurePeak } from './peak.js';

export interface Limits {
  /** Operations per second, by type: of a loop of multiply-adds on a CPU, of the largest plain product on a GPU. */
  readonly flops: Readonly<Partial<Record<FloatType, number>>>;
  /** Bytes per second of a copy, read and written ones both counted. */
  readonly bytes: number;
  /** Bytes per second of reading alone, which is what a step of generation does. */
  readonly readBytes: number;
  /** `flops` are those of the loop, which no product changes. */
  readonly isPeak?: boolean;
}

/** @param threads of a CPU; 0: a GPU */
export async function measureLimits(
  threads: number,
  measure: (group: Group) => Promise<readonly CaseResult[]>,
): Promise<Limits> {
  const results: CaseResult[] = [];
  for (const group of limitGroups(threads === 0)) results.push(...(await measure(group)));
  const limits = limitsOf(results);
  if (threads === 0) return limits;
  const peak = measurePeak(threads);
  if (typeof peak !== 'string') return { ...limits, flops: peak, isPeak: true };
  console.log(peak);
  return limits;
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
    if (item.suite === 'gemm') {
      if (!before?.isPeak) flops[item.dtype] = item.flops / seconds;
    } else if (item.suite === 'kernels' && item.op === 'finite') readBytes = item.bytes / seconds;
    else bytes = item.bytes / seconds;
  }
  const { f32 = 0, bf16 = 0 } = flops;
  if (f32 > bf16 && bf16 > 0) flops.bf16 = f32;
  return { ...before, flops, bytes, readBytes };
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
