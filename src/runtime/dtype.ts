/** The dtypes of tensors, and the arrays of the host that hold their values. */
import { StepTrainError } from '../native/errors.js';
import { shown } from '../native/shown.js';

export type DType = 'f32' | 'bf16' | 'i32' | 'u8';
export type TypedArray = Float32Array | Uint16Array | Int32Array | Uint8Array;

export const DTYPES: readonly DType[] = ['f32', 'bf16', 'i32', 'u8'];

/** @throws StepTrainError for a list, or a value that is no array at all */
export function typedArray(values: TypedArray): TypedArray {
  if (ArrayBuffer.isView(values)) return values;
  throw new StepTrainError(
    'E_DTYPE',
    `a tensor takes a typed array such as Float32Array.from([1, 2, 3]), found ${shown(values)}`,
  );
}

/** The dtype that an array has by itself. */
export function kindOf(values: TypedArray): DType {
  if (values instanceof Float32Array) return 'f32';
  if (values instanceof Int32Array) return 'i32';
  if (values instanceof Uint8Array) return 'u8';
  return 'bf16';
}

export function bf16ToFloat32(bits: Uint16Array): Float32Array {
  const words = new Uint32Array(bits.length);
  for (let i = 0; i < bits.length; i++) words[i] = (bits[i] as number) << 16;
  return new Float32Array(words.buffer);
}

/** Rounds to nearest even; NaN stays NaN. */
export function float32ToBf16(values: Float32Array): Uint16Array {
  const words = new Uint32Array(values.buffer, values.byteOffset, values.length);
  const bits = new Uint16Array(values.length);
  for (let i = 0; i < words.length; i++) {
    const word = words[i] as number;
    const nan = (word & 0x7fffffff) > 0x7f800000;
    bits[i] = nan ? (word >>> 16) | 0x40 : (word + 0x7fff + ((word >>> 16) & 1)) >>> 16;
  }
  return bits;
}

const STORAGE: Record<DType, string> = {
  f32: 'Float32Array',
  bf16: 'Uint16Array (bits) or Float32Array',
  i32: 'Int32Array',
  u8: 'Uint8Array',
};

/** `values` as a tensor of `dtype` stores them. @throws StepTrainError for an array of another kind */
export function toStorage(values: TypedArray, dtype: DType): TypedArray {
  typedArray(values);
  if (dtype === 'bf16' && values instanceof Float32Array) return float32ToBf16(values);
  const fits =
    (dtype === 'f32' && values instanceof Float32Array) ||
    (dtype === 'bf16' && values instanceof Uint16Array) ||
    (dtype === 'i32' && values instanceof Int32Array) ||
    (dtype === 'u8' && values instanceof Uint8Array);
  if (!fits) {
    throw new StepTrainError(
      'E_DTYPE',
      `a ${dtype} tensor takes ${STORAGE[dtype]}, got ${values.constructor.name}`,
    );
  }
  // The addon cannot be handed memory that another thread may change meanwhile.
  return values.buffer instanceof ArrayBuffer ? values : values.slice();
}
