import type { Parameter } from '../autograd/parameters.js';
import { openTape } from '../autograd/tape.js';
import { WANTED } from '../runtime/device.js';
import type { DType, Tensor } from '../runtime/tensor.js';

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

/** y [T, N] = x [T, K] · Wᵀ + bias + scale · (drop(x) · Aᵀ) · Bᵀ, in one launch. Dtype of x. */
export function linear(x: Tensor, weight: Parameter, options: LinearOptions = {}): Tensor {
  const { device } = x;
  const { bias, lora, dropout } = options;
  const tape = openTape();
  const trainable = [weight, bias, lora?.a, lora?.b].some((parameter) => parameter?.grad);
  const recording = tape && (tape.tracks(x) || trainable);
  const loraTrains = lora?.a.grad !== undefined && lora.b.grad !== undefined;
  const mask = lora ? dropout : undefined;
  const scalars = [lora?.scale ?? 0, mask?.rate ?? 0, mask?.key[0] ?? 0, mask?.key[1] ?? 0];
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
      recording && loraTrains ? WANTED : undefined,
    ],
    scalars,
  ) as [Tensor, Tensor | undefined];
  if (!recording) return y;

  const needsX = loraTrains || weight.grad !== undefined || bias?.grad !== undefined;
  const savedX = needsX ? tape.save(x) : undefined;
  const savedU = u ? tape.save(u) : undefined;
  const maskTensors = mask ? [tape.save(mask.rowIds), tape.save(mask.positions)] : [];
  const saved = [savedX, savedU, ...maskTensors].filter((tensor) => tensor !== undefined);
  tape.record([y], saved, ([dy], gradients) => {
    if (!dy) return;
    let v: Tensor | undefined;
    if (gradients.wants(x) || loraTrains) {
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
          loraTrains ? WANTED : undefined,
        ],
        [...scalars, into ? 1 : 0],
      );
      v = made;
      if (gradients.wants(x) && !into) gradients.add(x, dx as Tensor);
    }
    if (loraTrains && savedX && savedU && v) {
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
  return y;
}
