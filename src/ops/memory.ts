import { tapeFor } from '../autograd/tape.js';
import type { DType, Tensor } from '../runtime/tensor.js';

/** The chosen rows (i32 [R]) of x [T, H]. */
export function gatherRows(x: Tensor, rows: Tensor): Tensor {
  const { ops } = x.device;
  const { y } = ops.gather_rows({ x, rows });
  tapeFor(x)?.record(y, { rows }, (dy, saved, gradients) => {
    gradients.add(x, ops.scatter_rows({ x: dy, rows: saved.rows, T: x.shape[0] as number }).y);
  });
  return y;
}

/** The first and the second half of each group of `size` features of x [T, N], both [T, N/2]. */
export function splitHalves(x: Tensor, size: number): readonly [first: Tensor, second: Tensor] {
  const { ops } = x.device;
  const [rows, features] = x.shape as [number, number];
  const [shape, halved] = [
    [rows, features / 2],
    [x.size / size, size / 2],
  ];
  const made = ops.split_halves({ x: x.reshape([x.size / size, size]), D: size / 2 });
  const [first, second] = [made.first.reshape(shape), made.second.reshape(shape)];
  tapeFor(x)?.recordAll([first, second], {}, (incoming, _, gradients) => {
    const [left, right] = incoming.map((dy) => dy?.reshape(halved) ?? x.device.zeros(halved, x.dtype));
    const { y } = ops.join_halves({ first: left as Tensor, second: right as Tensor, N: size });
    gradients.add(x, y.reshape(x.shape));
  });
  return [first, second];
}

/** The chosen elements of x [T], such as i32 ids; not differentiable. */
export function gatherIds(x: Tensor, rows: Tensor): Tensor {
  const { y } = x.device.ops.gather_rows({ x: x.reshape([x.size, 1]), rows });
  return y.reshape([rows.size]);
}

/** x + y, elementwise, rounded once to their dtype. */
export function add(x: Tensor, y: Tensor): Tensor {
  const { z } = x.device.ops.add({ x, y });
  tapeFor(x, y)?.record(z, {}, (dz, _, gradients) => {
    // Both receive the same gradient; neither may then be written in place.
    for (const addend of [x, y]) gradients.add(addend, dz.alias());
  });
  return z;
}

/** factor · x. */
export function scale(x: Tensor, factor: number): Tensor {
  const { ops } = x.device;
  const { y } = ops.scale({ x, factor });
  tapeFor(x)?.record(y, {}, (dy, _, gradients) => gradients.add(x, ops.scale({ x: dy, factor }).y));
  return y;
}

/** x · y, elementwise, rounded once to their dtype. */
export function multiply(x: Tensor, y: Tensor): Tensor {
  const z = product(x, y);
  tapeFor(x, y)?.record(z, { x, y }, (dz, saved, gradients) => {
    if (gradients.wants(x)) gradients.add(x, product(dz, saved.y));
    if (gradients.wants(y)) gradients.add(y, product(dz, saved.x));
  });
  return z;
}

/** x · y by the kernel of swiglu's gradient, dy · up · silu'(gate), where silu'(0) is exactly a half: no kernel multiplies alone. */
function product(x: Tensor, y: Tensor): Tensor {
  const { device } = x;
  return device.scope(() => {
    const gate = device.ops.scale({ x, factor: 0 }).y;
    const { dgate } = device.ops.swiglu_backward({ dy: x, gate, up: y });
    return device.ops.scale({ x: dgate, factor: 2 }).y;
  });
}

/** x as f32 or bf16. */
export function cast(x: Tensor, dtype: DType): Tensor {
  if (x.dtype === dtype) return x;
  const { ops } = x.device;
  const { y } = ops.cast({ x, dtype });
  tapeFor(x)?.record(y, {}, (dy, _, gradients) => gradients.add(x, ops.cast({ x: dy, dtype: x.dtype }).y));
  return y;
}

/** The same elements under another shape. Shares the buffer; unlike `Tensor.reshape`, differentiable. */
export function reshape(x: Tensor, shape: readonly number[]): Tensor {
  const y = x.reshape(shape);
  tapeFor(x)?.record(y, {}, (dy, _, gradients) => {
    // A view hides from the tape that its buffer has another owner, so such a gradient is copied.
    const owned = dy.isShared ? dy.device.ops.copy({ x: dy }).y : dy;
    gradients.add(x, owned.reshape(x.shape));
  });
  return y;
}
