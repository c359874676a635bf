/** Tensors and their dtypes, as whoever opens no device needs them. A tensor and its device know each other, so both are in device.ts. */
export { Tensor } from './device.js';
export { bf16ToFloat32, DTYPES, type DType, float32ToBf16, type TypedArray } from './dtype.js';
