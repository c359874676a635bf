import { hasGrad, type Parameter } from '../autograd/parameters.js';
import { openTape, type Tape, tapeFor } from '../autograd/tape.js';
import type { Device } from '../runtime/device.js';
import type { DType, Tensor } from '../runtime/tensor.js';
import { recordSwiglu, swiglu } from './mlp.js';
import { type Norm, rmsNorm } from './norm.js';

/** A low-rank pair A [r, K], B [N, r] on a frozen weight, as in LoRA (arXiv 2106.09685). */
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

/** Pairs of G adapters side by side, packed in the dtype of activations. See the op `linear`. */
export interface StackedPairs {
  /** [S, K] */
  readonly a: Tensor;
  /** [N, S] */
  readonly b: Tensor;
  /** i32 [G, 2]: first rank of each adapter, and one past its last. */
  readonly ranks: Tensor;
  /** f32 [G] */
  readonly scales: Tensor;
}

export interface LinearOptions {
  readonly bias?: Parameter | undefined;
  readonly lora?: LoraPair | undefined;
  /** Instead of `lora`: a pair for each token, `adapter` [T] says which. Not differentiable. */
  readonly stack?: { readonly pairs: StackedPairs; readonly adapter: Tensor } | undefined;
  readonly dropout?: Dropout | undefined;
}

/** The weight in the layout that the device's GEMM reads, as `dtype`. */
export const packWeight = (weight: Tensor, dtype: DType): Tensor =>
  weight.device.ops.pack_weight({ w: weight, dtype }).y;

/**
 * Formats of quantised weights, whose bytes core/quantized.h describes; and those that a weight can be converted to.
 */
export type QuantizedFormat = Parameters<Device['ops']['pack_quantized']>[0]['format'];
export type MadeFormat = Parameters<Device['ops']['quantize']>[0]['format'];

/** Quantises a row-major weight [N, K] to the bytes that files hold. */
export function quantizeWeight(weight: Tensor, format: MadeFormat, size: number): Tensor {
  return weight.device.ops.quantize({ w: weight, format, B: size }).bytes;
}

/** Packs a weight [N, K] of such bytes into the layout that the device's GEMM reads; of dtype u8, and frozen. */
export function packQuantized(
  bytes: Tensor,
  format: QuantizedFormat,
  [N, K]: readonly [number, number],
): Tensor {
  return bytes.device.ops.pack_quantized({ bytes, format, N, K }).y;
}

/** Unpacks a weight to row-major, also a quantised one. */
export const unpackWeight = (weight: Tensor, dtype: DType): Tensor =>
  weight.device.ops.unpack_weight({ w: weight, dtype }).y;

/** Puts a pair into a stack, from rank `first` on, a multiple of 32. */
export function stackLora({ a, b }: LoraPair, stack: Pick<StackedPairs, 'a' | 'b'>, first: number): void {
  const { ops } = a.value.device;
  ops.stack_lora({ a: a.value, b: b.value, stack_a: stack.a, stack_b: stack.b, first });
}

/** A weight with its bias, adapter and dropout. */
export interface Projection extends LinearOptions {
  readonly weight: Parameter;
}

/**
 * y [T, N] = x [T, K] · Wᵀ + bias + scale · (drop(x) · Aᵀ) · Bᵀ, in one launch. Dtype of x.
 *
 * @param residual is added to that, with the bits of an op of its own; not differentiable, and not with a stack
 */
export function linear(x: Tensor, weight: Parameter, options: LinearOptions = {}, residual?: Tensor): Tensor {
  const { bias, lora, stack } = options;
  const projection = { weight, bias, lora, dropout: options.dropout };
  const mask = maskOf(projection);
  const tape = recordingTape(x, projection);
  const { y, u } = x.device.ops.linear({
    x,
    w: weight.value,
    bias: bias?.value,
    lora_a: lora?.a.value,
    lora_b: lora?.b.value,
    row_ids: mask?.rowIds,
    positions: mask?.positions,
    stack_a: stack?.pairs.a,
    stack_b: stack?.pairs.b,
    adapter: stack?.adapter,
    ranks: stack?.pairs.ranks,
    scales: stack?.pairs.scales,
    residual,
    scale: lora?.scale,
    dropout: mask?.rate,
    key0: mask?.key[0],
    key1: mask?.key[1],
    u: tape !== undefined && loraTrains(projection),
  });
  if (tape) recordLinear(tape, y, x, projection, u);
  return y;
}

/**
 * `linear` of x, or of its RMSNorm, with each of three projections, with its bits. One op, and on a GPU one product of
 * few rows, where no tape records it and nothing is dropped.
 */
export function linearQkv(
  x: Tensor,
  q: Projection,
  k: Projection,
  v: Projection,
  norm?: Norm,
): [Tensor, Tensor, Tensor] {
  const mask = maskOf(q) ?? maskOf(k) ?? maskOf(v);
  const stack = q.stack ?? k.stack ?? v.stack;
  if (norm && (openTape() || mask || stack)) return linearQkv(rmsNorm(x, norm.weight, norm.eps), q, k, v);
  const apart = (of: Projection) => recordingTape(x, of) !== undefined;
  const pair = q.lora ?? k.lora ?? v.lora;
  if (mask || apart(q) || apart(k) || apart(v) || (pair && stack) || !sameAdapter(q, k, v)) {
    return [linear(x, q.weight, q), linear(x, k.weight, k), linear(x, v.weight, v)];
  }
  const adapter = stack?.adapter;
  const { ops } = x.device;
  const made = adapter
    ? ops.linear_qkv_stack({
        x,
        w_q: q.weight.value,
        w_k: k.weight.value,
        w_v: v.weight.value,
        q_bias: q.bias?.value,
        k_bias: k.bias?.value,
        v_bias: v.bias?.value,
        adapter,
        q_stack_a: q.stack?.pairs.a,
        q_stack_b: q.stack?.pairs.b,
        q_ranks: q.stack?.pairs.ranks,
        q_scales: q.stack?.pairs.scales,
        k_stack_a: k.stack?.pairs.a,
        k_stack_b: k.stack?.pairs.b,
        k_ranks: k.stack?.pairs.ranks,
        k_scales: k.stack?.pairs.scales,
        v_stack_a: v.stack?.pairs.a,
        v_stack_b: v.stack?.pairs.b,
        v_ranks: v.stack?.pairs.ranks,
        v_scales: v.stack?.pairs.scales,
      })
    : ops.linear_qkv({
        x,
        w_q: q.weight.value,
        w_k: k.weight.value,
        w_v: v.weight.value,
        q_bias: q.bias?.value,
        k_bias: k.bias?.value,
        v_bias: v.bias?.value,
        q_a: q.lora?.a.value,
        q_b: q.lora?.b.value,
        k_a: k.lora?.a.value,
        k_b: k.lora?.b.value,
        v_a: v.lora?.a.value,
        v_b: v.lora?.b.value,
        q_scale: q.lora?.scale,
        k_scale: k.lora?.scale,
        v_scale: v.lora?.scale,
        norm: norm?.weight.value,
        eps: norm?.eps,
      });
  return [made.q, made.k, made.v];
}

/**
 * silu(gate) · up [T, N] of two linears of x, or of its RMSNorm, with the bits of `swiglu(linear(x, gate), linear(x, up))`:
 * one op where neither has a bias. gate and up are written to memory only where a tape is open.
 */
export function linearSwiglu(x: Tensor, gate: Projection, up: Projection, norm?: Norm): Tensor {
  const rates = new Set([gate, up].filter(({ lora }) => lora).map(({ dropout }) => dropout?.rate ?? 0));
  const stack = gate.stack ?? up.stack;
  const apart = gate.bias || up.bias || rates.size > 1 || (stack && (gate.lora || up.lora));
  if (norm && (openTape() || apart || stack)) {
    return linearSwiglu(rmsNorm(x, norm.weight, norm.eps), gate, up);
  }
  if (apart) return swiglu(linear(x, gate.weight, gate), linear(x, up.weight, up));
  if (stack) return stackedSwiglu(x, gate, up, stack.adapter);
  const [gateTape, upTape] = [recordingTape(x, gate), recordingTape(x, up)];
  const recording = (gateTape ?? upTape) !== undefined;
  const [gateMask, upMask] = [maskOf(gate), maskOf(up)];
  const mask = gateMask ?? upMask;
  const made = x.device.ops.linear_swiglu({
    x,
    w_gate: gate.weight.value,
    w_up: up.weight.value,
    gate_a: gate.lora?.a.value,
    gate_b: gate.lora?.b.value,
    up_a: up.lora?.a.value,
    up_b: up.lora?.b.value,
    row_ids: mask?.rowIds,
    positions: mask?.positions,
    gate_scale: gate.lora?.scale,
    up_scale: up.lora?.scale,
    dropout: mask?.rate,
    gate_key0: gateMask?.key[0],
    gate_key1: gateMask?.key[1],
    up_key0: upMask?.key[0],
    up_key1: upMask?.key[1],
    norm: norm?.weight.value,
    eps: norm?.eps,
    gate: recording,
    up: recording,
    gate_u: gateTape !== undefined && loraTrains(gate),
    up_u: upTape !== undefined && loraTrains(up),
  });
  if (gateTape && made.gate) recordLinear(gateTape, made.gate, x, gate, made.gate_u);
  if (upTape && made.up) recordLinear(upTape, made.up, x, up, made.up_u);
  if (made.gate && made.up) recordSwiglu(made.y, made.gate, made.up);
  return made.y;
}

function stackedSwiglu(x: Tensor, gate: Projection, up: Projection, adapter: Tensor): Tensor {
  const [gates, ups] = [gate.stack?.pairs, up.stack?.pairs];
  return x.device.ops.linear_swiglu_stack({
    x,
    w_gate: gate.weight.value,
    w_up: up.weight.value,
    adapter,
    gate_stack_a: gates?.a,
    gate_stack_b: gates?.b,
    gate_ranks: gates?.ranks,
    gate_scales: gates?.scales,
    up_stack_a: ups?.a,
    up_stack_b: ups?.b,
    up_ranks: ups?.ranks,
    up_scales: ups?.scales,
  }).y;
}

/** Whether those that have a stack read the same tensor of adapters by row. */
function sameAdapter(...[q, k, v]: readonly [Projection, Projection, Projection]): boolean {
  const adapter = (q.stack ?? k.stack ?? v.stack)?.adapter;
  const same = ({ stack }: Projection) => !stack || stack.adapter === adapter;
  return same(q) && same(k) && same(v);
}

/** Dropout works on the input of a pair alone. */
export const maskOf = ({ lora, dropout }: Pick<LinearOptions, 'lora' | 'dropout'>): Dropout | undefined =>
  lora ? dropout : undefined;

export const loraTrains = ({ lora }: Pick<LinearOptions, 'lora'>): boolean =>
  hasGrad(lora?.a) && hasGrad(lora?.b);

/** The open tape where a linear of x has a gradient to carry back. */
const recordingTape = (x: Tensor, { weight, bias, lora }: Projection): Tape | undefined =>
  tapeFor(x, weight, bias, lora?.a, lora?.b);

function recordLinear(tape: Tape, y: Tensor, x: Tensor, projection: Projection, u: Tensor | undefined): void {
  const { ops } = x.device;
  const { weight, bias, lora } = projection;
  const mask = maskOf(projection);
  const trains = loraTrains(projection);
  const needsX = trains || hasGrad(weight) || hasGrad(bias);
  const save = { x: needsX ? x : undefined, u, row_ids: mask?.rowIds, positions: mask?.positions };
  tape.record(y, save, (dy, saved, gradients) => {
    const [scale, dropout, key0, key1] = [lora?.scale, mask?.rate, mask?.key[0], mask?.key[1]];
    const { row_ids, positions } = saved;
    if (gradients.wants(x) || trains) {
      const into = gradients.wants(x) ? gradients.inPlace(x) : undefined;
      const { dx } = ops.linear_dx({
        dy,
        w: weight.value,
        lora_a: lora?.a.value,
        lora_b: lora?.b.value,
        row_ids,
        positions,
        x: trains ? saved.x : undefined,
        u: trains ? saved.u : undefined,
        da: trains ? lora?.a.grad : undefined,
        db: trains ? lora?.b.grad : undefined,
        scale,
        dropout,
        key0,
        key1,
        accumulate: into !== undefined,
        dx: into,
      });
      if (!into) gradients.add(x, dx);
    }
    if (saved.x && (hasGrad(weight) || hasGrad(bias))) {
      ops.linear_dw({ x: saved.x, dy, dw: weight.grad, db: bias?.grad });
    }
  });
}
