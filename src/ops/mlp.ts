import { openTape, type Tape } from '../autograd/tape.js';
import type { Tensor } from '../runtime/tensor.js';
import { multiply } from './memory.js';

/** silu(gate) · up, elementwise [T, N]. */
export function swiglu(gate: Tensor, up: Tensor): Tensor {
  const { y } = gate.device.ops.swiglu({ gate, up });
  recordSwiglu(openTape(), y, gate, up);
  return y;
}

/** gelu(gate) · up with GELU's tanh form, elementwise [T, N]. */
export function geglu(gate: Tensor, up: Tensor): Tensor {
  return multiply(gelu(gate, { tanh: true }), up);
}

/** Records y = silu(gate) · up, however it was made. */
export function recordSwiglu(tape: Tape | undefined, y: Tensor, gate: Tensor, up: Tensor): void {
  if (!tape || !(tape.tracks(gate) || tape.tracks(up))) return;
  const { ops } = y.device;
  tape.record(y, { gate, up }, (dy, saved, gradients) => {
    const { dgate, dup } = ops.swiglu_backward({ dy, gate: saved.gate, up: saved.up });
    if (gradients.wants(gate)) gradients.add(gate, dgate);
    if (gradients.wants(up)) gradients.add(up, dup);
  });
}

/** Elementwise; `tanh` chooses the approximation that GPT-2 and its kin use. */
export function gelu(x: Tensor, { tanh }: { readonly tanh?: boolean } = {}): Tensor {
  const { ops } = x.device;
  return activation(x, ops.gelu({ x, tanh }).y, (args) => ops.gelu_backward({ ...args, tanh }).dx);
}

export function relu(x: Tensor): Tensor {
  const { ops } = x.device;
  return activation(x, ops.relu({ x }).y, (args) => ops.relu_backward(args).dx);
}

function activation(
  x: Tensor,
  y: Tensor,
  backward: (args: { readonly dy: Tensor; readonly x: Tensor }) => Tensor,
): Tensor {
  const tape = openTape();
  if (tape?.tracks(x)) {
    tape.record(y, { x }, (dy, saved, gradients) => gradients.add(x, backward({ ...saved, dy })));
  }
  return y;
}
