/** Conversions between the floating-point types of weight files, on bit patterns. Values are rounded to nearest, ties to even. */

import { bytesPerElement, type FloatDtype } from './dtype.js';
import { WeightsError } from './error.js';

const float = new Float32Array(1);
const word = new Uint32Array(float.buffer);

/** IEEE half → single; exact. */
export function f16ToF32(bits: Uint16Array): Float32Array<ArrayBuffer> {
  const out = new Float32Array(bits.length);
  const words = new Uint32Array(out.buffer);
  for (let i = 0; i < bits.length; i++) {
    const half = bits[i]!;
    const sign = (half & 0x8000) << 16;
    const exponent = (half >> 10) & 0x1f;
    const fraction = half & 0x3ff;
    if (exponent === 0) {
      // Zero or subnormal: fraction × 2^-24 is a normal single.
      float[0] = fraction * 2 ** -24;
      words[i] = word[0]! | sign;
    } else if (exponent === 31) words[i] = sign | 0x7f800000 | (fraction << 13);
    else words[i] = sign | ((exponent + 112) << 23) | (fraction << 13);
  }
  return out;
}

/** bfloat16 → single; exact. */
export function bf16ToF32(bits: Uint16Array): Float32Array<ArrayBuffer> {
  const out = new Float32Array(bits.length);
  const words = new Uint32Array(out.buffer);
  for (let i = 0; i < bits.length; i++) words[i] = bits[i]! << 16;
  return out;
}

/** Single → bfloat16. A NaN stays a (quiet) NaN with its sign. */
export function f32ToBf16(values: Float32Array): Uint16Array<ArrayBuffer> {
  const out = new Uint16Array(values.length);
  const words = new Uint32Array(values.buffer, values.byteOffset, values.length);
  for (let i = 0; i < words.length; i++) {
    const bits = words[i]!;
    const notANumber = (bits & 0x7fffffff) > 0x7f800000;
    // Rounding could carry a NaN's fraction over into the sign, hence the quiet bit instead.
    out[i] = notANumber ? (bits >>> 16) | 0x40 : (bits + 0x7fff + ((bits >>> 16) & 1)) >>> 16;
  }
  return out;
}

/** Single → IEEE half; beyond 65,504 + half a step it becomes infinity. A NaN stays a (quiet) NaN with its sign. */
export function f32ToF16(values: Float32Array): Uint16Array<ArrayBuffer> {
  const out = new Uint16Array(values.length);
  for (let i = 0; i < values.length; i++) {
    float[0] = values[i]!;
    const bits = word[0]!;
    const sign = (bits >>> 16) & 0x8000;
    const magnitude = bits & 0x7fffffff;
    if (magnitude > 0x7f800000) out[i] = sign | 0x7e00 | ((magnitude >>> 13) & 0x1ff);
    else if (magnitude >= 0x47800000) out[i] = sign | 0x7c00;
    else if (magnitude >= 0x38800000) {
      const rebased = magnitude - 0x38000000;
      out[i] = sign | ((rebased + 0xfff + ((rebased >>> 13) & 1)) >>> 13);
    } else {
      // Subnormal half: adding 0.5 puts the steps of 2^-24 at the end of the fraction, where the addition itself rounds them.
      float[0] = Math.abs(values[i]!) + 0.5;
      out[i] = sign | (word[0]! - 0x3f000000);
    }
  }
  return out;
}

/** The bytes of a tensor as singles. `bytes` must start at a multiple of the element size; F32 is a view, not a copy. */
export function toF32(bytes: Uint8Array<ArrayBuffer>, dtype: FloatDtype): Float32Array<ArrayBuffer> {
  const count = bytes.length / bytesPerElement(dtype);
  if (dtype === 'F32') return new Float32Array(bytes.buffer, bytes.byteOffset, count);
  const bits = new Uint16Array(bytes.buffer, bytes.byteOffset, count);
  return dtype === 'F16' ? f16ToF32(bits) : bf16ToF32(bits);
}

/** Singles as the bytes of a tensor; F32 is a view, not a copy. */
export function fromF32(values: Float32Array<ArrayBuffer>, dtype: FloatDtype): Uint8Array<ArrayBuffer> {
  const stored = dtype === 'F32' ? values : dtype === 'F16' ? f32ToF16(values) : f32ToBf16(values);
  return new Uint8Array(stored.buffer, stored.byteOffset, stored.byteLength);
}

/**
 * As {@link fromF32}, of the values of a weight.
 *
 * @param weight its name, and the values of a row, for the message
 * @throws WeightsError where a value is no finite number, or too large for `dtype`
 */
export function finiteFromF32(
  values: Float32Array<ArrayBuffer>,
  dtype: FloatDtype,
  weight: { readonly name: string; readonly width: number },
): Uint8Array<ArrayBuffer> {
  const { name, width } = weight;
  const stored = fromF32(values, dtype);
  const at = nonFiniteIndex(stored, dtype);
  if (at < 0) return stored;
  const place = `weight '${name}' would be ${values[at]} at [${Math.floor(at / width)},${at % width}]`;
  throw new WeightsError(
    Number.isFinite(values[at])
      ? `${place}, which ${dtype.toLowerCase()} cannot hold; write another dtype, such as bf16`
      : `${place}: model or adapter are damaged, or their training diverged; take an earlier checkpoint`,
  );
}

/** Number of values that change when `values` are stored as `dtype`. A NaN does not count. */
export function countInexact(values: Float32Array, dtype: FloatDtype): number {
  if (dtype === 'F32') return 0;
  const stored = dtype === 'F16' ? f16ToF32(f32ToF16(values)) : bf16ToF32(f32ToBf16(values));
  let count = 0;
  for (let i = 0; i < values.length; i++) {
    if (stored[i] !== values[i] && !Number.isNaN(values[i]!)) count++;
  }
  return count;
}

/** Place of the first NaN or infinity in the bytes of a tensor, which start at a multiple of the element size; −1 where all are finite. */
export function nonFiniteIndex(bytes: Uint8Array<ArrayBuffer>, dtype: FloatDtype): number {
  const count = bytes.length / bytesPerElement(dtype);
  const bits =
    dtype === 'F32'
      ? new Uint32Array(bytes.buffer, bytes.byteOffset, count)
      : new Uint16Array(bytes.buffer, bytes.byteOffset, count);
  const exponent = dtype === 'F32' ? 0x7f800000 : dtype === 'F16' ? 0x7c00 : 0x7f80;
  for (let i = 0; i < count; i++) if ((bits[i]! & exponent) === exponent) return i;
  return -1;
}
