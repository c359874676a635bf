// Decimals of Parquet with all their digits. The library multiplies what is stored by a power of ten, so that 0.3 becomes
// 0.30000000000000004, and digits beyond 2^53 are lost.
import type { FileMetaData, SchemaElement } from 'hyparquet';
import { badFile } from '../files/data-error.js';

/** Columns of decimals, with the digits behind the point. */
const SCALES = new WeakMap<SchemaElement, number>();

/**
 * Has the library give what is stored for decimals: whole numbers, or their bytes.
 *
 * @throws DataError for decimals in byte arrays of any length, which the library reads as texts
 */
export function takeDecimals({ schema }: FileMetaData, file: string): void {
  for (const element of schema) {
    if (element.converted_type !== 'DECIMAL' && element.logical_type?.type !== 'DECIMAL') continue;
    if (element.type === 'BYTE_ARRAY')
      throw badFile(
        `column '${element.name}' has decimals in byte arrays, which are not read; write it as text or as float64`,
        { file },
      );
    SCALES.set(element, element.scale ?? 0);
    delete element.converted_type;
    delete element.logical_type;
  }
}

/** The digits of a stored decimal, such as `-0.05`; without a point where the column has none. Undefined for anything else. */
export function decimalText(value: unknown, element: SchemaElement | undefined): string | undefined {
  const scale = element && SCALES.get(element);
  if (scale === undefined) return undefined;
  const stored = storedOf(value);
  if (stored === undefined || scale === 0) return stored?.toString();
  const digits = (stored < 0n ? -stored : stored).toString().padStart(scale + 1, '0');
  return `${stored < 0n ? '-' : ''}${digits.slice(0, -scale)}.${digits.slice(-scale)}`;
}

function storedOf(value: unknown): bigint | undefined {
  if (typeof value === 'bigint' || typeof value === 'number') return BigInt(value);
  if (!(value instanceof Uint8Array)) return undefined;
  let whole = 0n;
  for (const byte of value) whole = whole * 256n + BigInt(byte);
  return BigInt.asIntN(8 * value.length, whole);
}
