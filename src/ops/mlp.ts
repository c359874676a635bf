import { openTape, type Tape } from '../autograd/tape.js';
import type { Tensor } from '../runtime/tensor.js';

/** silu(gate) · up, elementwise [T, N]. */
export function swiglu(gate: Tensor, up: Tensor): Tensor {
  const { device } = gate;
  const y = device.enqueue(device.signature('swiglu'), [gate, up])[0] as Tensor;
  recordSwiglu(openTape(), y, gate, up);
  return y;
}

/** Records y = silu(gate) · up, however it was made. */
export function recordSwiglu(tape: Tape | undefined, y: Tensor, gate: Tensor, up: Tensor): void {
  if (!tape || !(tape.tracks(gate) || tape.tracks(up))) return;
  const { device } = y;
  const saved = [tape.save(gate), tape.save(up)];
  tape.record([y], saved, ([dy], gradients) => {
    const [dgate, dup] = device.enqueue(device.signature('swiglu_backward'), [dy, ...saved]) as [
      Tensor,
      Tensor,
    ];
    if (gradients.wants(gate)) gradients.add(gate, dgate);
    if (gradients.wants(up)) gradients.add(up, dup);
  });
}

/** Elementwise; `tanh` chooses the approximation that GPT-2 and its kin use. */
export function gelu(x: Tensor, { tanh = false }: { readonly tanh?: boolean } = {}): Tensor {
  return activation('gelu', x, [tanh ? 1 : 0]);
}

export function relu(x: Tensor): Tensor {
  return activation('relu', x, []);
}

function activation(op: 'gelu' | 'relu', x: Tensor, scalars: readonly number[]): Tensor {
  const { device } = x;
  const y = device.enqueue(device.signature(op), [x], scalars)[0] as Tensor;
  const tape = openTape();
  if (!tape?.tracks(x)) return y;
  const saved = tape.save(x);
  tape.record([y], [saved], ([dy], gradients) => {
    gradients.add(x, device.enqueue(device.signature(`${op}_backward`), [dy, saved], scalars)[0] as Tensor);
  });
  return y;
}
