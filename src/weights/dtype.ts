import { invalid } from '../native/errors.js';
import { shown } from '../native/shown.js';

/** Element types by their names in safetensors files, in the order in which the format sorts them: widest alignment last. */
const BYTES = {
  BOOL: 1,
  U8: 1,
  I8: 1,
  F8_E5M2: 1,
  F8_E4M3: 1,
  F8_E8M0: 1,
  I16: 2,
  U16: 2,
  F16: 2,
  BF16: 2,
  I32: 4,
  U32: 4,
  F32: 4,
  C64: 8,
  F64: 8,
  I64: 8,
  U64: 8,
} as const;

export type Dtype = keyof typeof BYTES;

/** Types in which the weights of a model may be stored. */
export type FloatDtype = 'F32' | 'BF16' | 'F16';
const FLOAT_DTYPES: readonly string[] = ['F32', 'BF16', 'F16'] satisfies FloatDtype[];

/** Names of the same types in calls. */
export type FloatName = Lowercase<FloatDtype>;

/** @throws StepTrainError for anything but a name of {@link FloatName} */
export function floatDtype(call: string, name: FloatName): FloatDtype {
  const found = FLOAT_DTYPES.find((dtype) => dtype.toLowerCase() === name);
  if (found !== undefined) return found as FloatDtype;
  throw invalid(`${call}: dtype: expected 'f32', 'bf16' or 'f16', found ${shown(name)}`);
}

const ORDER = Object.keys(BYTES) as readonly Dtype[];

export function isDtype(name: string): name is Dtype {
  return Object.hasOwn(BYTES, name);
}

export function isFloatDtype(name: string): name is FloatDtype {
  return FLOAT_DTYPES.includes(name);
}

export function dtypeNames(): readonly Dtype[] {
  return ORDER;
}

export function bytesPerElement(dtype: Dtype): number {
  return BYTES[dtype];
}

/** Place of the type in the layout order of a safetensors file. */
export function dtypeRank(dtype: Dtype): number {
  return ORDER.indexOf(dtype);
}

/**
 * Bytes of a dense tensor, or undefined where the product leaves the exact integers (2^53 − 1).
 * A zero extent gives 0 only when the other extents multiply without leaving them either.
 */
export function tensorBytes(dtype: Dtype, shape: readonly number[]): number | undefined {
  let bytes: number = BYTES[dtype];
  for (const extent of shape) {
    if (extent === 0) continue;
    bytes *= extent;
    if (bytes > Number.MAX_SAFE_INTEGER) return undefined;
  }
  return shape.includes(0) ? 0 : bytes;
}
