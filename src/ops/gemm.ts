import type { Parameter } from '../autograd/parameters.js';
import { openTape, type Tape } from '../autograd/tape.js';
import { WANTED } from '../runtime/device.js';
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
export function packWeight(weight: Tensor, dtype: DType): Tensor {
  const { device } = weight;
  return device.enqueue(device.signature('pack_weight'), [weight], [dtype === 'bf16' ? 1 : 0])[0] as Tensor;
}

/** Back to row-major. */
export function unpackWeight(weight: Tensor, dtype: DType): Tensor {
  const { device } = weight;
  return device.enqueue(device.signature('unpack_weight'), [weight], [dtype === 'bf16' ? 1 : 0])[0] as Tensor;
}

/** A weight with what stands beside it. */
export interface Projection extends LinearOptions {
  readonly weight: Parameter;
}

/** y [T, N] = x [T, K] · Wᵀ + bias + scale · (drop(x) · Aᵀ) · Bᵀ, in one launch. Dtype of x. */
export function linear(x: Tensor, weight: Parameter, options: LinearOptions = {}): Tensor {
  const { device } = x;
  const { bias, lora } = options;
  const projection: Projection = { ...options, weight };
  const mask = maskOf(projection);
  const tape = recordingTape(x, projection);
  const [y, u] = device.enqueue(
    device.signature('linear'),
    [
      x,
      weight.value,
      bias?.value,
      lora?.a.value,
      lora?.b.value,
      mask?.rowIds,
      mask?.positions,
      undefined,
      tape && loraTrains(projection) ? WANTED : undefined,
    ],
    scalarsOf(projection),
  ) as [Tensor, Tensor | undefined];
  if (tape) recordLinear(tape, y, x, projection, u);
  return y;
}

/**
 * silu(gate) · up [T, N] of two linears of x, with the bits of `swiglu(linear(x, gate), linear(x, up))`: one launch where
 * neither has a bias. gate and up are written to memory only where a tape is open.
 */
export function linearSwiglu(x: Tensor, gate: Projection, up: Projection): Tensor {
  const { device } = x;
  const [gateMask, upMask] = [maskOf(gate), maskOf(up)];
  const rates = new Set([gate, up].filter(({ lora }) => lora).map(({ dropout }) => dropout?.rate ?? 0));
  if (gate.bias || up.bias || rates.size > 1) {
    return swiglu(linear(x, gate.weight, gate), linear(x, up.weight, up));
  }
  const [gateTape, upTape] = [recordingTape(x, gate), recordingTape(x, up)];
  const wanted = (asked: unknown) => (asked ? WANTED : undefined);
  const mask = gateMask ?? upMask;
  const [y, gateY, upY, gateU, upU] = device.enqueue(
    device.signature('linear_swiglu'),
    [
      x,
      gate.weight.value,
      up.weight.value,
      gate.lora?.a.value,
      gate.lora?.b.value,
      up.lora?.a.value,
      up.lora?.b.value,
      mask?.rowIds,
      mask?.positions,
      undefined,
      wanted(gateTape ?? upTape),
      wanted(gateTape ?? upTape),
      wanted(gateTape && loraTrains(gate)),
      wanted(upTape && loraTrains(up)),
    ],
    [
      gate.lora?.scale ?? 0,
      up.lora?.scale ?? 0,
      mask?.rate ?? 0,
      ...(gateMask?.key ?? [0, 0]),
      ...(upMask?.key ?? [0, 0]),
    ],
  ) as [Tensor, ...(Tensor | undefined)[]];
  if (gateTape) recordLinear(gateTape, gateY as Tensor, x, gate, gateU);
  if (upTape) recordLinear(upTape, upY as Tensor, x, up, upU);
  if (gateY && upY) recordSwiglu(openTape(), y, gateY, upY);
  return y;
}

/** Dropout works on the input of a pair alone. */
const maskOf = ({ lora, dropout }: Projection): Dropout | undefined => (lora ? dropout : undefined);

const loraTrains = ({ lora }: Projection): boolean => lora?.a.grad !== undefined && lora.b.grad !== undefined;

const scalarsOf = (projection: Projection): readonly number[] => {
  const mask = maskOf(projection);
  return [projection.lora?.scale ?? 0, mask?.rate ?? 0, mask?.key[0] ?? 0, mask?.key[1] ?? 0];
};

/** The open tape where a linear of x has a gradient to carry back. */
function recordingTape(x: Tensor, { weight, bias, lora }: Projection): Tape | undefined {
  const tape = openTape();
  const trainable = [weight, bias, lora?.a, lora?.b].some((parameter) => parameter?.grad);
  return tape && (tape.tracks(x) || trainable) ? tape : undefined;
}

function recordLinear(tape: Tape, y: Tensor, x: Tensor, projection: Projection, u: Tensor | undefined): void {
  const { device } = x;
  const { weight, bias, lora } = projection;
  const mask = maskOf(projection);
  const trains = loraTrains(projection);
  const needsX = trains || weight.grad !== undefined || bias?.grad !== undefined;
  const savedX = needsX ? tape.save(x) : undefined;
  const savedU = u ? tape.save(u) : undefined;
  const maskTensors = mask ? [tape.save(mask.rowIds), tape.save(mask.positions)] : [];
  const saved = [savedX, savedU, ...maskTensors].filter((tensor) => tensor !== undefined);
  const scalars = scalarsOf(projection);
  tape.record([y], saved, ([dy], gradients) => {
    if (!dy) return;
    let v: Tensor | undefined;
    if (gradients.wants(x) || trains) {
      const into = gradients.wants(x) ? gradients.inPlace(x) : undefined;
      const [dx, made] = device.enqueue(
        device.signature('linear_dx'),
        [
          dy,
          weight.value,
          lora?.a.value,
          lora?.b.value,
          maskTensors[0],
          maskTensors[1],
          into,
          trains ? WANTED : undefined,
        ],
        [...scalars, into ? 1 : 0],
      );
      v = made;
      if (gradients.wants(x) && !into) gradients.add(x, dx as Tensor);
    }
    if (lora && trains && savedX && savedU && v) {
      device.enqueue(
        device.signature('lora_grads'),
        [savedX, dy, savedU, v, lora.a.grad, lora.b.grad, maskTensors[0], maskTensors[1]],
        scalars,
      );
    }
    if (weight.grad || bias?.grad) {
      device.enqueue(device.signature('linear_dw'), [savedX, dy, weight.grad, bias?.grad]);
    }
  });
}
