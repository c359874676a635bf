import { tapeFor } from '../autograd/tape.js';
import type { Tensor } from '../runtime/tensor.js';

export interface RotaryTable {
  /** f32 [positions, headDim / 2], or narrower: then only the first elements of a head turn, twice as many. */
  readonly cos: Tensor;
  readonly sin: Tensor;
}

/** The angles of tokens. */
export interface Rotary extends RotaryTable {
  /** i32 [T] */
  readonly positions: Tensor;
}

/** Rotates each head of x [T, heads·headDim] by its token's position (i32 [T]), halves paired as in Hugging Face. */
export function rope(x: Tensor, headDim: number, { cos, sin, positions }: Rotary): Tensor {
  const { ops } = x.device;
  const heads = [x.shape[0] as number, (x.shape[1] as number) / headDim, headDim];
  const partial = isPartial(cos, headDim);
  const y = ops.rope({ x: x.reshape(heads), cos, sin, positions, partial }).y.reshape(x.shape);
  tapeFor(x)?.record(y, { cos, sin, positions }, (dy, { cos, sin, positions }, gradients) => {
    const dx = ops.rope({ x: dy.reshape(heads), cos, sin, positions, inverse: true, partial }).y;
    gradients.add(x, dx.reshape(x.shape));
  });
  return y;
}

/** Whether the tables turn only a part of each head. */
export function isPartial(cos: Tensor, headDim: number): boolean {
  return 2 * (cos.shape[1] as number) < headDim;
}
