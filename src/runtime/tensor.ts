export { Tensor } from './device.js';
export { bf16ToFloat32, DTYPES, type DType, float32ToBf16, type TypedArray } from './dtype.js';
