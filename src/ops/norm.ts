import type { Parameter } from '../autograd/parameters.js';
import { type Gradients, tapeFor } from '../autograd/tape.js';
import type { Tensor } from '../runtime/tensor.js';

/**
 * y = RMSNorm(x) · weight over each group of |weight| features of x [T, N]: one group for a layer's norm, one per head
 * for the query and key norms. Statistics in f32.
 */
export function rmsNorm(x: Tensor, weight: Parameter, eps: number): Tensor {
  const { ops } = x.device;
  const grouped = [x.size / weight.value.size, weight.value.size];
  const { y, rstd } = ops.rmsnorm({ x: x.reshape(grouped), weight: weight.value, eps });
  const result = y.reshape(x.shape);
  tapeFor(x, weight)?.record(result, { x, rstd }, (dy, saved, gradients) => {
    const { dx } = ops.rmsnorm_backward({
      dy: dy.reshape(grouped),
      sum: saved.x.reshape(grouped),
      rstd: saved.rstd,
      weight: weight.value,
      dweight: weight.grad,
    });
    gradients.add(x, dx.reshape(x.shape));
  });
  return result;
}

/** An RMSNorm in front of something else that takes it up. */
export interface Norm {
  readonly weight: Parameter;
  readonly eps: number;
}

/** RMSNorms of each head of queries and keys, weights [headDim]. */
export interface HeadNorms {
  readonly q: Parameter;
  readonly k: Parameter;
  readonly eps: number;
}

/** sum = x + residual, y = RMSNorm(sum) · weight, in one launch. x, residual [T, H]. */
export function addRmsNorm(
  x: Tensor,
  residual: Tensor,
  weight: Parameter,
  eps: number,
): { readonly y: Tensor; readonly sum: Tensor } {
  const { ops } = x.device;
  const { y, sum, rstd } = ops.rmsnorm({ x, weight: weight.value, residual, eps, sum: true });
  tapeFor(x, residual, weight)?.recordAll([y, sum], { sum, rstd }, ([dy, dsum], { sum, rstd }, gradients) => {
    const [w, dweight] = [weight.value, weight.grad];
    const dx = dy ? ops.rmsnorm_backward({ dy, sum, weight: w, rstd, dsum, dweight }).dx : dsum?.alias();
    addToBoth(gradients, x, residual, dx);
  });
  return { y, sum };
}

/** y = LayerNorm(x) · weight + bias over x [T, H]. Statistics in f32. */
export function layerNorm(x: Tensor, { weight, bias }: LayerNormParameters, eps: number): Tensor {
  const { ops } = x.device;
  const { y, mean, rstd } = ops.layernorm({ x, weight: weight.value, bias: bias?.value, eps });
  tapeFor(x, weight, bias)?.record(y, { sum: x, mean, rstd }, (dy, saved, gradients) => {
    const gained = { dweight: weight.grad, dbias: bias?.grad };
    const { dx } = ops.layernorm_backward({ ...saved, dy, weight: weight.value, ...gained });
    gradients.add(x, dx);
  });
  return y;
}

/** The affine part of a LayerNorm, each [H]; without a bias y = normalised · weight. */
export interface LayerNormParameters {
  readonly weight: Parameter;
  readonly bias?: Parameter | undefined;
}

/** sum = x + residual, y = LayerNorm(sum) · weight + bias, in one launch. x, residual [T, H]. Statistics in f32. */
export function addLayerNorm(
  x: Tensor,
  residual: Tensor,
  { weight, bias }: LayerNormParameters,
  eps: number,
): { readonly y: Tensor; readonly sum: Tensor } {
  const { ops } = x.device;
  const affine = { weight: weight.value, bias: bias?.value };
  const { y, sum, mean, rstd } = ops.layernorm({ x, ...affine, residual, eps, sum: true });
  tapeFor(x, residual, weight, bias)?.recordAll(
    [y, sum],
    { sum, mean, rstd },
    ([dy, dsum], saved, gradients) => {
      const gained = { dweight: weight.grad, dbias: bias?.grad };
      const dx = dy
        ? ops.layernorm_backward({ ...saved, dy, dsum, weight: weight.value, ...gained }).dx
        : dsum?.alias();
      addToBoth(gradients, x, residual, dx);
    },
  );
  return { y, sum };
}

/** Both addends receive the same gradient; neither may then be written in place. */
function addToBoth(gradients: Gradients, x: Tensor, residual: Tensor, dx: Tensor | undefined): void {
  if (!dx) return;
  gradients.add(residual, dx.alias());
  gradients.add(x, dx);
}
