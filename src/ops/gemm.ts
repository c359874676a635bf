import type { Parameter } from '../autograd/parameters.js';
import { openTape, type Tape } from '../autograd/tape.js';
import type { DType, Tensor } from '../runtime/tensor.js';
import { recordSwiglu, swiglu } from './mlp.js';

/** A low-rank pair A [r, K], B [N, r] beside a frozen weight, as in LoRA (arXiv 2106.09685). */
export interface LoraPair {
  readonly a: Parameter;
  readonly b: Parameter;
  /** lora_alpha / r, or lora_alpha / √r. */
  readonly scale: number;
}

/** Dropout of the adapter's input. The mask depends on key, row id, position and feature alone. */
export interface Dropout {
  readonly rate: number;
  /** Two 32-bit words made of (run seed, step, layer, role). */
  readonly key: readonly [number, number];
  readonly rowIds: Tensor;
  readonly positions: Tensor;
}

export interface LinearOptions {
  readonly bias?: Parameter | undefined;
  readonly lora?: LoraPair | undefined;
  readonly dropout?: Dropout | undefined;
}

/** The weight in the layout that the device's GEMM reads, as `dtype`. */
export const packWeight = (weight: Tensor, dtype: DType): Tensor =>
  weight.device.ops.pack_weight({ w: weight, dtype }).y;

/** Back to row-major. */
export const unpackWeight = (weight: Tensor, dtype: DType): Tensor =>
  weight.device.ops.unpack_weight({ w: weight, dtype }).y;

/** A weight with what stands beside it. */
export interface Projection extends LinearOptions {
  readonly weight: Parameter;
}

/** y [T, N] = x [T, K] · Wᵀ + bias + scale · (drop(x) · Aᵀ) · Bᵀ, in one launch. Dtype of x. */
export function linear(x: Tensor, weight: Parameter, options: LinearOptions = {}): Tensor {
  const projection: Projection = { ...options, weight };
  const tape = recordingTape(x, projection);
  const { y, u } = x.device.ops.linear({
    x,
    ...factorsOf(projection),
    bias: options.bias?.value,
    ...maskOf(projection),
    u: tape !== undefined && loraTrains(projection),
  });
  if (tape) recordLinear(tape, y, x, projection, u);
  return y;
}

/**
 * silu(gate) · up [T, N] of two linears of x, with the bits of `swiglu(linear(x, gate), linear(x, up))`: one launch where
 * neither has a bias. gate and up are written to memory only where a tape is open.
 */
export function linearSwiglu(x: Tensor, gate: Projection, up: Projection): Tensor {
  const rates = new Set([gate, up].filter(({ lora }) => lora).map(({ dropout }) => dropout?.rate ?? 0));
  if (gate.bias || up.bias || rates.size > 1) {
    return swiglu(linear(x, gate.weight, gate), linear(x, up.weight, up));
  }
  const [gateMask, upMask] = [maskOf(gate), maskOf(up)];
  const { row_ids, positions, dropout } = gateMask ?? upMask ?? {};
  const [gateTape, upTape] = [recordingTape(x, gate), recordingTape(x, up)];
  const recording = (gateTape ?? upTape) !== undefined;
  const made = x.device.ops.linear_swiglu({
    x,
    w_gate: gate.weight.value,
    w_up: up.weight.value,
    gate_a: gate.lora?.a.value,
    gate_b: gate.lora?.b.value,
    gate_scale: gate.lora?.scale,
    gate_key0: gateMask?.key0,
    gate_key1: gateMask?.key1,
    up_a: up.lora?.a.value,
    up_b: up.lora?.b.value,
    up_scale: up.lora?.scale,
    up_key0: upMask?.key0,
    up_key1: upMask?.key1,
    row_ids,
    positions,
    dropout,
    gate: recording,
    up: recording,
    gate_u: gateTape !== undefined && loraTrains(gate),
    up_u: upTape !== undefined && loraTrains(up),
  });
  if (gateTape && made.gate) recordLinear(gateTape, made.gate, x, gate, made.gate_u);
  if (upTape && made.up) recordLinear(upTape, made.up, x, up, made.up_u);
  if (made.gate && made.up) recordSwiglu(openTape(), made.y, made.gate, made.up);
  return made.y;
}

/** The frozen weight and the pair beside it, as `linear` and `linear_dx` take them. */
const factorsOf = ({ weight, lora }: Projection) => ({
  w: weight.value,
  lora_a: lora?.a.value,
  lora_b: lora?.b.value,
  scale: lora?.scale,
});

/** Dropout works on the input of a pair alone. */
const maskOf = ({ lora, dropout }: Projection) =>
  lora && dropout
    ? {
        row_ids: dropout.rowIds,
        positions: dropout.positions,
        dropout: dropout.rate,
        key0: dropout.key[0],
        key1: dropout.key[1],
      }
    : undefined;

const loraTrains = ({ lora }: Projection): boolean => lora?.a.grad !== undefined && lora.b.grad !== undefined;

/** The open tape where a linear of x has a gradient to carry back. */
function recordingTape(x: Tensor, { weight, bias, lora }: Projection): Tape | undefined {
  const tape = openTape();
  const trainable = [weight, bias, lora?.a, lora?.b].some((parameter) => parameter?.grad);
  return tape && (tape.tracks(x) || trainable) ? tape : undefined;
}

function recordLinear(tape: Tape, y: Tensor, x: Tensor, projection: Projection, u: Tensor | undefined): void {
  const { ops } = x.device;
  const { weight, bias, lora } = projection;
  const { row_ids, positions, ...mask } = maskOf(projection) ?? {};
  const trains = loraTrains(projection);
  const needsX = trains || weight.grad !== undefined || bias?.grad !== undefined;
  const save = { x: needsX ? x : undefined, u, row_ids, positions };
  tape.record(y, save, (dy, { x: savedX, u, ...rows }, gradients) => {
    let v: Tensor | undefined;
    if (gradients.wants(x) || trains) {
      const into = gradients.wants(x) ? gradients.inPlace(x) : undefined;
      const factors = { ...factorsOf(projection), ...rows, ...mask };
      const made = ops.linear_dx({ dy, ...factors, dx: into, accumulate: into !== undefined, v: trains });
      v = made.v;
      if (gradients.wants(x) && !into) gradients.add(x, made.dx);
    }
    if (lora?.a.grad && lora.b.grad && savedX && u && v) {
      const sums = { da: lora.a.grad, db: lora.b.grad };
      ops.lora_grads({ x: savedX, dy, u, v, ...sums, ...rows, ...mask, scale: lora.scale });
    }
    if (savedX && (weight.grad || bias?.grad)) {
      ops.linear_dw({ x: savedX, dy, dw: weight.grad, db: bias?.grad });
    }
  });
}
