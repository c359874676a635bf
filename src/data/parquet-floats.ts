// Single and half floats of Parquet as their writers print them: 0.1, where the double of the same value is
// 0.10000000149011612.
import type { SchemaElement } from 'hyparquet';

/** The number with the fewest digits that a column of singles or halves stores as this value; any other value as it is. */
export function shortest(value: unknown, element: SchemaElement | undefined): unknown {
  if (typeof value !== 'number' || !Number.isFinite(value)) return value;
  const half = element?.logical_type?.type === 'FLOAT16';
  if (!half && element?.type !== 'FLOAT') return value;
  if (Number.isInteger(value) && Math.abs(value) < 2 ** (half ? 11 : 24)) return value;
  const stored = half ? nearestHalf : Math.fround;
  // Decimals of 3 (6) digits survive being stored as a normal number, so trials begin there; 5 (9) digits always do.
  const normal = Math.abs(value) >= 2 ** (half ? -14 : -126);
  for (let digits = !normal ? 1 : half ? 3 : 6; digits < (half ? 5 : 9); digits++) {
    const short = Number(value.toPrecision(digits));
    if (stored(short) === value) return short;
  }
  return Number(value.toPrecision(half ? 5 : 9));
}

function nearestHalf(value: number): number {
  const step = 2 ** (Math.max(Math.floor(Math.log2(Math.abs(value))), -14) - 10);
  return Math.round(value / step) * step;
}
