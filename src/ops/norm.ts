import type { Parameter } from '../autograd/parameters.js';
import { openTape } from '../autograd/tape.js';
import { WANTED } from '../runtime/device.js';
import type { Tensor } from '../runtime/tensor.js';

/**
 * y = RMSNorm(x) · weight over each group of |weight| features of x [T, N]: one group for a layer's norm, one per head
 * for the query and key norms. Statistics in f32.
 */
export function rmsNorm(x: Tensor, weight: Parameter, eps: number): Tensor {
  const { device } = x;
  const grouped = [x.size / (weight.value.shape[0] as number), weight.value.shape[0] as number];
  const [y, , rstd] = device.enqueue(
    device.signature('rmsnorm'),
    [x.reshape(grouped), weight.value, undefined],
    [eps],
  ) as [Tensor, undefined, Tensor];
  const result = y.reshape(x.shape);
  const tape = openTape();
  if (!tape || !(tape.tracks(x) || weight.grad)) return result;
  const saved = [tape.save(x), tape.save(rstd)] as const;
  tape.record([result], saved, ([dy], gradients) => {
    const [dx] = device.enqueue(device.signature('rmsnorm_backward'), [
      dy?.reshape(grouped),
      saved[0].reshape(grouped),
      weight.value,
      saved[1],
      undefined,
      weight.grad,
    ]);
    if (gradients.wants(x)) gradients.add(x, (dx as Tensor).reshape(x.shape));
  });
  return result;
}

/** sum = x + residual, y = RMSNorm(sum) · weight, in one launch. x, residual [T, H]. */
export function addRmsNorm(
  x: Tensor,
  residual: Tensor,
  weight: Parameter,
  eps: number,
): { readonly y: Tensor; readonly sum: Tensor } {
  const { device } = x;
  const tape = openTape();
  const recording = tape && (tape.tracks(x) || tape.tracks(residual) || weight.grad !== undefined);
  const [y, sum, rstd] = device.enqueue(
    device.signature('rmsnorm'),
    [x, weight.value, residual, undefined, WANTED],
    [eps],
  ) as [Tensor, Tensor, Tensor];
  if (!recording) return { y, sum };

  const [savedSum, savedRstd] = [tape.save(sum), tape.save(rstd)];
  tape.record([y, sum], [savedSum, savedRstd], ([dy, dsum], gradients) => {
    const dx = dy
      ? device.enqueue(device.signature('rmsnorm_backward'), [
          dy,
          savedSum,
          weight.value,
          savedRstd,
          dsum,
          weight.grad,
        ])[0]
      : dsum?.alias();
    if (!dx) return;
    // Both addends receive the same gradient; neither may then be written in place.
    if (gradients.wants(residual)) gradients.add(residual, dx.alias());
    if (gradients.wants(x)) gradients.add(x, dx);
    else dx.dispose();
  });
  return { y, sum };
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
  const { device } = x;
  const [y, sum, mean, rstd] = device.enqueue(
    device.signature('layernorm'),
    [x, weight.value, bias?.value, residual, undefined, WANTED],
    [eps],
  ) as [Tensor, Tensor, Tensor, Tensor];
  const tape = openTape();
  if (!tape || !(tape.tracks(x) || tape.tracks(residual) || weight.grad || bias?.grad)) return { y, sum };

  const saved = [tape.save(sum), tape.save(mean), tape.save(rstd)];
  const [savedSum, savedMean, savedRstd] = saved;
  tape.record([y, sum], saved, ([dy, dsum], gradients) => {
    const dx = dy
      ? device.enqueue(device.signature('layernorm_backward'), [
          dy,
          savedSum,
          weight.value,
          savedMean,
          savedRstd,
          dsum,
          weight.grad,
          bias?.grad,
        ])[0]
      : dsum?.alias();
    if (!dx) return;
    // Both addends receive the same gradient; neither may then be written in place.
    if (gradients.wants(residual)) gradients.add(residual, dx.alias());
    if (gradients.wants(x)) gradients.add(x, dx);
    else dx.dispose();
  });
  return { y, sum };
}
