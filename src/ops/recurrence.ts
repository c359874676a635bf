/** Layers that go through a sequence token by token with a state of fixed size, instead of attention. */
import type { Parameter } from '../autograd/parameters.js';
import { tapeFor } from '../autograd/tape.js';
import type { Tensor } from '../runtime/tensor.js';

/** The sequences of a ragged batch of T tokens. */
export interface RecurrentSequences {
  /** i32 [B + 1]: where each sequence begins. */
  readonly cuSeqlens: Tensor;
  /** i32 [T]: 0 on the trunk. A branch is one run of tokens that continues the trunk before it; numbers ascend in a sequence. */
  readonly branch?: Tensor | undefined;
  /**
   * States in which the sequences continue from earlier calls, and which they leave for later ones. Not differentiable,
   * without branches.
   */
  readonly kept?: KeptStates | undefined;
}

export interface KeptStates {
  /** i32 [B]: the row of each sequence in the states; −1: none. */
  readonly slots: Tensor;
  /** i32 [B]: tokens of each sequence up to its last one here. Where all of them are here, it begins without a state. */
  readonly lengths: Tensor;
  /** [S, taps − 1, C], as the activations. */
  readonly convolution: Tensor;
  /** f32 [S, H, K, V] */
  readonly delta: Tensor;
}

/**
 * y[t, c] = silu(Σ_j weight[c, 0, taps − 1 − j] · x[t_j, c]) over token t_0 = t and the tokens before it. x [T, C], weight [C, 1, taps]
 * with at most 8 taps. Errors: E_SHAPE, E_DTYPE; borders, branches and slots out of range fail the queue (E_RANGE).
 */
export function causalConv1d(
  x: Tensor,
  weight: Parameter,
  { cuSeqlens, branch, kept }: RecurrentSequences,
): Tensor {
  const { ops } = x.device;
  const { y } = ops.causal_conv1d({
    x,
    weight: weight.value,
    cu_seqlens: cuSeqlens,
    branch,
    state: kept?.convolution,
    slots: kept?.slots,
    lengths: kept?.lengths,
  });
  tapeFor(x, weight)?.record(y, { x, cu_seqlens: cuSeqlens, branch }, (dy, saved, gradients) => {
    const { dx } = ops.causal_conv1d_backward({ ...saved, dy, weight: weight.value, dweight: weight.grad });
    gradients.add(x, dx);
  });
  return y;
}

export interface DeltaRuleInputs {
  /** [T, 2·keyHeads·keySize + H·valueSize]: queries, keys and values of all heads. */
  readonly qkv: Tensor;
  /** [T, H] */
  readonly a: Tensor;
  /** [T, H] */
  readonly b: Tensor;
  /** [H] */
  readonly aLog: Parameter;
  /** [H] */
  readonly dtBias: Parameter;
}

export interface DeltaHeads {
  readonly keyHeads: number;
  readonly keySize: number;
  readonly valueSize: number;
}

/**
 * The gated delta rule (arXiv 2412.06464), [T, H·valueSize]: with α = exp(−exp(aLog)·softplus(a + dtBias)), β = σ(b), and q and k
 * divided by their norms, S = α·S + k·(β·(v − α·Sᵀk))ᵀ and o = Sᵀq/√keySize for each of H heads, which share the key heads in
 * groups. States in f32. Errors: E_SHAPE, E_DTYPE; borders, branches and slots out of range fail the queue (E_RANGE).
 */
export function gatedDeltaRule(
  { qkv, a, b, aLog, dtBias }: DeltaRuleInputs,
  { keyHeads: G, keySize: K, valueSize: V }: DeltaHeads,
  { cuSeqlens, branch, kept }: RecurrentSequences,
): Tensor {
  const { ops } = qkv.device;
  const gates = { a_log: aLog.value, dt_bias: dtBias.value };
  const { o } = ops.gated_delta_rule({
    qkv,
    a,
    b,
    ...gates,
    cu_seqlens: cuSeqlens,
    branch,
    state: kept?.delta,
    slots: kept?.slots,
    lengths: kept?.lengths,
    G,
    K,
    V,
  });
  const [tokens, heads] = a.shape as [number, number];
  const y = o.reshape([tokens, heads * V]);
  const saved = { qkv, a, b, cu_seqlens: cuSeqlens, branch };
  tapeFor(qkv, a, b, aLog, dtBias)?.record(y, saved, (dy, inputs, gradients) => {
    const { dqkv, da, db } = ops.gated_delta_rule_backward({
      ...inputs,
      ...gates,
      do: dy.reshape([tokens, heads, V]),
      da_log: aLog.grad,
      ddt_bias: dtBias.grad,
      G,
      K,
    });
    gradients.add(qkv, dqkv);
    gradients.add(a, da);
    gradients.add(b, db);
  });
  return y;
}
