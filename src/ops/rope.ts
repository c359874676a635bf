import { openTape } from '../autograd/tape.js';
import type { Tensor } from '../runtime/tensor.js';

export interface RotaryTable {
  /** f32 [positions, headDim / 2]. */
  readonly cos: Tensor;
  readonly sin: Tensor;
}

/** Rotates each head of x [T, heads·headDim] by its token's position (i32 [T]), halves paired as in Hugging Face. */
export function rope(x: Tensor, headDim: number, table: RotaryTable, positions: Tensor): Tensor {
  const { device } = x;
  const op = device.signature('rope');
  const rotate = (t: Tensor, by: readonly Tensor[], inverse: number): Tensor => {
    const heads = t.reshape([t.shape[0] as number, (t.shape[1] as number) / headDim, headDim]);
    return (device.enqueue(op, [heads, ...by], [inverse])[0] as Tensor).reshape(t.shape);
  };
  const by = [table.cos, table.sin, positions];
  const y = rotate(x, by, 0);
  const tape = openTape();
  if (!tape?.tracks(x)) return y;
  const saved = by.map((tensor) => tape.save(tensor));
  tape.record([y], saved, ([dy], gradients) => {
    gradients.add(x, rotate(dy as Tensor, saved, 1));
  });
  return y;
}
