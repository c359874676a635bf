import { tapeFor } from '../autograd/tape.js';
import type { Tensor } from '../runtime/tensor.js';
import { multiply } from './memory.js';

/** silu(gate) · up, elementwise [T, N]. */
export function swiglu(gate: Tensor, up: Tensor): Tensor {
  const { y } = gate.device.ops.swiglu({ gate, up });
  recordSwiglu(y, gate, up);
  return y;
}

/** σ(gate) · x, elementwise [T, N]. */
export function sigmoidGate(gate: Tensor, x: Tensor): Tensor {
  const { ops } = gate.device;
  const { y } = ops.sigmoid_gate({ gate, x });
  tapeFor(gate, x)?.record(y, { gate, x }, (dy, saved, gradients) => {
    const { dgate, dx } = ops.sigmoid_gate_backward({ dy, gate: saved.gate, x: saved.x });
    gradients.add(gate, dgate);
    gradients.add(x, dx);
  });
  return y;
}

/** gelu(gate) · up with GELU's tanh form, elementwise [T, N]. */
export function geglu(gate: Tensor, up: Tensor): Tensor {
  return multiply(gelu(gate, { tanh: true }), up);
}

/** Records y = silu(gate) · up, however it was made. */
export function recordSwiglu(y: Tensor, gate: Tensor, up: Tensor): void {
  const { ops } = y.device;
  tapeFor(gate, up)?.record(y, { gate, up }, (dy, saved, gradients) => {
    const { dgate, dup } = ops.swiglu_backward({ dy, gate: saved.gate, up: saved.up });
    gradients.add(gate, dgate);
    gradients.add(up, dup);
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
  tapeFor(x)?.record(y, { x }, (dy, saved, gradients) => gradients.add(x, backward({ ...saved, dy })));
  return y;
}
