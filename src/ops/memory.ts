import { openTape } from '../autograd/tape.js';
import type { DType, Tensor } from '../runtime/tensor.js';

/** The chosen rows (i32 [R]) of x [T, H]. */
export function gatherRows(x: Tensor, rows: Tensor): Tensor {
  const { device } = x;
  const y = device.enqueue(device.signature('gather_rows'), [x, rows])[0] as Tensor;
  const tape = openTape();
  if (!tape?.tracks(x)) return y;
  const savedRows = tape.save(rows);
  const length = x.shape[0] as number;
  tape.record([y], [savedRows], ([dy], gradients) => {
    gradients.add(
      x,
      device.enqueue(device.signature('scatter_rows'), [dy, savedRows], [length])[0] as Tensor,
    );
  });
  return y;
}

/** x + y, elementwise, rounded once to their dtype. */
export function add(x: Tensor, y: Tensor): Tensor {
  const { device } = x;
  const z = device.enqueue(device.signature('add'), [x, y])[0] as Tensor;
  const tape = openTape();
  if (!tape || !(tape.tracks(x) || tape.tracks(y))) return z;
  tape.record([z], [], ([dz], gradients) => {
    // Both receive the same gradient; neither may then be written in place.
    for (const addend of [x, y]) if (gradients.wants(addend)) gradients.add(addend, (dz as Tensor).alias());
  });
  return z;
}

/** x as f32 or bf16. */
export function cast(x: Tensor, dtype: DType): Tensor {
  if (x.dtype === dtype) return x;
  const { device } = x;
  const to = (t: Tensor, target: DType) =>
    device.enqueue(device.signature('cast'), [t], [target === 'bf16' ? 1 : 0])[0] as Tensor;
  const y = to(x, dtype);
  const tape = openTape();
  if (!tape?.tracks(x)) return y;
  tape.record([y], [], ([dy], gradients) => gradients.add(x, to(dy as Tensor, x.dtype)));
  return y;
}

/** The same elements under another shape. Shares the buffer; unlike `Tensor.reshape`, differentiable. */
export function reshape(x: Tensor, shape: readonly number[]): Tensor {
  const y = x.reshape(shape);
  const tape = openTape();
  if (!tape?.tracks(x)) return y;
  tape.record([y], [], ([dy], gradients) => {
    const gradient = dy as Tensor;
    const { device } = gradient;
    // A view hides from the tape that its buffer has another owner, so such a gradient is copied.
    const owned = gradient.isShared
      ? (device.enqueue(device.signature('copy'), [gradient])[0] as Tensor)
      : gradient;
    gradients.add(x, owned.reshape(x.shape));
  });
  return y;
}
