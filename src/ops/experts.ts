/** Mixture of experts: the choice of experts for each token, the products of their rows, and the sum of the results. */
import { hasGrad, type Parameter } from '../autograd/parameters.js';
import { type Tape, tapeFor } from '../autograd/tape.js';
import type { Tensor } from '../runtime/tensor.js';
import { type Dropout, type LoraPair, loraTrains, maskOf } from './gemm.js';

/**
 * The k of E experts that each of T tokens goes to. The S = T·k pairs are rows in order of adapters, then experts, then
 * tokens.
 */
export interface Routing {
  /** f32 [T, k], differentiable: weight of each expert's output. */
  readonly weights: Tensor;
  /** i32 [T, k], by falling weight. */
  readonly experts: Tensor;
  /** i32 [T, k]: the row of each pair. */
  readonly places: Tensor;
  /** i32 [S]: the token of each row. */
  readonly rows: Tensor;
  /** i32 [E + 1], or for each adapter E more: where the rows of each expert begin, then S. */
  readonly offsets: Tensor;
}

/** f32 or bf16 weights of E experts with their adapters. */
export interface ExpertProjection {
  /**
   * Weight of shape [E, N, K]; each packed, quantised or neither, one after the other (`stackWeight`); trainable f32.
   */
  readonly weight: Parameter;
  /** A [E, r, K] and B [E, N, r]. */
  readonly lora?: LoraPair | undefined;
  /** Replaces `lora`, for tokens of several adapters. */
  readonly stack?: StackedExperts | undefined;
  /** Dropout on the input of all pairs; row ids and positions are those of rows, i32 [S]. */
  readonly dropout?: Dropout | undefined;
}

/** The pairs of `RoutedAdapters` on E experts, those of an adapter one after the other. Not differentiable. */
export interface StackedExperts {
  /** f32 [count·E, r, K]. */
  readonly a: Tensor;
  /** f32 [count·E, N, r]. */
  readonly b: Tensor;
  /** f32 [count·E]: factor of each pair's low-rank rows. */
  readonly scales: Tensor;
}

/** Adapters whose pairs on experts the tokens of one forward have. Not differentiable. */
export interface RoutedAdapters {
  /** i32 [T]: number of each token's adapter; −1: none. */
  readonly adapter: Tensor;
  readonly count: number;
}

/**
 * The k experts of the largest logits [T, E] of each token, of equal ones the first, weighted by the softmax over all E.
 *
 * @param normalise divides the k weights by their sum
 * @param balance f32 [E]: a further gradient of each token's softmax, such as that of a loss that balances experts. It is read
 * when the backward runs
 * @throws E_RANGE, where the queue is next waited for, unless 1 ≤ k ≤ E
 */
export function route(
  logits: Tensor,
  k: number,
  normalise = true,
  {
    balance,
    adapters,
  }: { readonly balance?: Tensor | undefined; readonly adapters?: RoutedAdapters | undefined } = {},
): Routing {
  const { ops } = logits.device;
  const P = (1 + (adapters?.count ?? 0)) * (logits.shape[1] as number);
  const made = ops.route({ logits, adapter: adapters?.adapter, k, normalise, P });
  const { weights, experts, places, rows, offsets } = made;
  tapeFor(logits)?.record(weights, { logits, weights, experts, balance }, (dweights, saved, gradients) => {
    gradients.add(logits, ops.route_backward({ dweights, ...saved, normalise }).dlogits);
  });
  return { weights, experts, places, rows: rows.reshape([rows.size]), offsets };
}

/** z [T, H]: the rows y [S, H] of each token, weighted and added in f32. Dtype of y. */
export function combineExperts(y: Tensor, { weights, places }: Routing): Tensor {
  const { ops } = y.device;
  const { z } = ops.combine_experts({ y, places, weights });
  tapeFor(y, weights)?.record(z, { y, places, weights }, (dz, saved, gradients) => {
    const { dy, dweights } = ops.combine_experts_backward({ dz, ...saved });
    gradients.add(y, dy);
    gradients.add(weights, dweights);
  });
  return z;
}

/**
 * y [S, N]: `linear` of the rows x [S, K] of each expert, with that expert's weight and pair. Dtype of x.
 *
 * @param offsets i32 [E + 1], those of a `Routing`
 */
export function linearExperts(x: Tensor, projection: ExpertProjection, offsets: Tensor): Tensor {
  const { weight, lora, stack } = projection;
  const mask = maskOf(projection);
  const tape = tapeFor(x, weight, lora?.a, lora?.b);
  const { y, u } = x.device.ops.linear_experts({
    x,
    w: weight.value,
    offsets,
    lora_a: stack?.a ?? lora?.a.value,
    lora_b: stack?.b ?? lora?.b.value,
    scales: stack?.scales,
    row_ids: mask?.rowIds,
    positions: mask?.positions,
    scale: lora?.scale,
    dropout: mask?.rate,
    key0: mask?.key[0],
    key1: mask?.key[1],
    u: tape !== undefined && loraTrains(projection),
  });
  if (tape) record(tape, y, x, projection, offsets, u);
  return y;
}

function record(
  tape: Tape,
  y: Tensor,
  x: Tensor,
  projection: ExpertProjection,
  offsets: Tensor,
  u: Tensor | undefined,
): void {
  const { ops } = x.device;
  const { weight, lora } = projection;
  const mask = maskOf(projection);
  const trains = loraTrains(projection);
  const save = {
    x: trains || hasGrad(weight) ? x : undefined,
    u,
    offsets,
    row_ids: mask?.rowIds,
    positions: mask?.positions,
  };
  tape.record(y, save, (dy, saved, gradients) => {
    const [scale, dropout, key0, key1] = [lora?.scale, mask?.rate, mask?.key[0], mask?.key[1]];
    const { offsets, row_ids, positions } = saved;
    let v: Tensor | undefined;
    if (gradients.wants(x) || trains) {
      const into = gradients.wants(x) ? gradients.inPlace(x) : undefined;
      const made = ops.linear_experts_dx({
        dy,
        w: weight.value,
        offsets,
        lora_a: lora?.a.value,
        lora_b: lora?.b.value,
        row_ids,
        positions,
        scale,
        dropout,
        key0,
        key1,
        accumulate: into !== undefined,
        dx: into,
        v: trains,
      });
      v = made.v;
      if (!into) gradients.add(x, made.dx);
    }
    if (lora && trains && saved.x && saved.u && v) {
      const [da, db] = [lora.a.grad as Tensor, lora.b.grad as Tensor];
      const { x, u } = saved;
      const given = { x, dy, u, v, offsets, da, db, row_ids, positions };
      ops.linear_experts_lora_grads({ ...given, scale, dropout, key0, key1 });
    }
    if (saved.x && hasGrad(weight))
      ops.linear_experts_dw({ x: saved.x, dy, offsets, dw: weight.grad as Tensor });
  });
}

/**
 * Puts a weight [N, K] into its place among those of `experts` experts, which are one tensor [E, N, K]: all of one layout (packed,
 * quantised or neither), one after the other. Without `stack` makes that tensor, whose other weights are undefined.
 */
export function stackWeight(w: Tensor, expert: number, experts: number, stack?: Tensor): Tensor {
  return w.device.ops.stack_weight({ w, E: experts, expert, stack }).stack;
}

/** The weight [N, K] of one expert of [E, N, K]. Shares the buffer. */
export function expertWeight(stack: Tensor, expert: number): Tensor {
  const [, n = 0, k = 0] = stack.shape;
  return stack.view(expert * n * k, [n, k]);
}
