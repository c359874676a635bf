#include "core/ops.h"

namespace steptrain {
namespace {

// T tokens, R selected rows, B sequences, H hidden, K/N in/out features, V vocabulary, r LoRA rank,
// Hq/Hk query/key heads, D head size, E = D/2, P positions or parameters, S segments.
const char* const kSignatures[] = {
    // ---- gemm --------------------------------------------------------------------------------------------
    // Row-major [N,K] to and from the panels that the micro-kernel reads; on CUDA a copy.
    "pack_weight(w:F[N,K]; dtype:i) -> y:@dtype[N,K]",
    "unpack_weight(w:W[N,K]; dtype:i) -> y:@dtype[N,K]",
    // y = x·Wᵀ + bias + scale·u·Bᵀ with u = drop(x)·Aᵀ. key0, key1: Philox key of the dropout mask, counter
    // (row_ids[t], positions[t], k). Master weights may be f32 under bf16 activations.
    "linear(x:F[T,K], w:W[N,K], bias?:F[N], lora_a?:f32[r,K], lora_b?:f32[N,r], row_ids?:i32[T], "
    "positions?:i32[T];"
    " scale:f, dropout:f, key0:i, key1:i) -> y:=x[T,N], u?:f32[T,r]",
    // y = silu(gate)·up, where gate and up are what linear makes of x with either weight and its own LoRA
    // pair
    // (r and s are their ranks): the bits of linear, linear, swiglu. gate and up are what the gradient needs.
    "linear_swiglu(x:F[T,K], w_gate:W[N,K], w_up:W[N,K], gate_a?:f32[r,K], gate_b?:f32[N,r], up_a?:f32[s,K],"
    " up_b?:f32[N,s], row_ids?:i32[T], positions?:i32[T]; gate_scale:f, up_scale:f, dropout:f, gate_key0:i,"
    " gate_key1:i, up_key0:i, up_key1:i)"
    " -> y:=x[T,N], gate?:=x[T,N], up?:=x[T,N], gate_u?:f32[T,r], up_u?:f32[T,s]",
    // dx (+)= dy·W + mask·(v·A) with v = scale·dy·B. accumulate 1 adds to the dx that is passed.
    "linear_dx(dy:F[T,N], w:W[N,K], lora_a?:f32[r,K], lora_b?:f32[N,r], row_ids?:i32[T], positions?:i32[T];"
    " scale:f, dropout:f, key0:i, key1:i, accumulate:i) -> dx:=dy[T,K], v?:f32[T,r]",
    // da += vᵀ·drop(x), db += scale·dyᵀ·u.
    "lora_grads(x:F[T,K], dy:F[T,N], u:f32[T,r], v:f32[T,r], &da:f32[r,K], &db:f32[N,r], row_ids?:i32[T],"
    " positions?:i32[T]; scale:f, dropout:f, key0:i, key1:i)",
    // dw += dyᵀ·x, db += column sums of dy.
    "linear_dw(x:F[T,K], dy:F[T,N], &dw?:f32[N,K], &db?:f32[N])",

    // ---- attention ---------------------------------------------------------------------------------------
    // Query i of a sequence sees key j of the same sequence where j ≤ i (causal), i - j < window (window > 0)
    // and branch[j] is 0 or branch[i]. lse = log Σ exp(scale·qk), natural logarithm.
    "attention(q:F[T,Hq,D], k:F[T,Hk,D], v:F[T,Hk,D], cu_seqlens:i32[B+1], branch?:i32[T];"
    " causal:i, window:i, scale:f) -> o:=q[T,Hq,D], lse:f32[Hq,T]",
    "attention_backward(do:F[T,Hq,D], q:F[T,Hq,D], k:F[T,Hk,D], v:F[T,Hk,D], o:F[T,Hq,D], lse:f32[Hq,T],"
    " cu_seqlens:i32[B+1], branch?:i32[T]; causal:i, window:i, scale:f)"
    " -> dq:=q[T,Hq,D], dk:=q[T,Hk,D], dv:=q[T,Hk,D]",

    // ---- norm --------------------------------------------------------------------------------------------
    // sum = x + residual (or x); y = sum · rsqrt(mean(sum²) + eps) · weight.
    "rmsnorm(x:F[T,H], weight:F[H], residual?:=x[T,H]; eps:f) -> y:=x[T,H], sum?:=x[T,H], rstd:f32[T]",
    // dx = dsum + ∂y/∂sum·dy; dweight +=.
    "rmsnorm_backward(dy:F[T,H], sum:=dy[T,H], weight:F[H], rstd:f32[T], dsum?:=dy[T,H], &dweight?:f32[H])"
    " -> dx:=dy[T,H]",
    "layernorm(x:F[T,H], weight:F[H], bias?:F[H], residual?:=x[T,H]; eps:f)"
    " -> y:=x[T,H], sum?:=x[T,H], mean:f32[T], rstd:f32[T]",
    "layernorm_backward(dy:F[T,H], sum:=dy[T,H], weight:F[H], mean:f32[T], rstd:f32[T], dsum?:=dy[T,H],"
    " &dweight?:f32[H], &dbias?:f32[H]) -> dx:=dy[T,H]",

    // ---- rope --------------------------------------------------------------------------------------------
    // Halves rotate as in Hugging Face models: (a, b) -> (a·cos - b·sin, b·cos + a·sin); inverse 1 for the
    // gradient.
    "rope(x:F[T,Hq,D], cos:f32[P,E], sin:f32[P,E], positions:i32[T]; inverse:i) -> y:=x[T,Hq,D]",

    // ---- mlp ---------------------------------------------------------------------------------------------
    "swiglu(gate:F[T,N], up:=gate[T,N]) -> y:=gate[T,N]",
    "swiglu_backward(dy:F[T,N], gate:=dy[T,N], up:=dy[T,N]) -> dgate:=dy[T,N], dup:=dy[T,N]",
    "gelu(x:F[#n]; tanh:i) -> y:=x[#n]",
    "gelu_backward(dy:F[#n], x:=dy[#n]; tanh:i) -> dx:=dy[#n]",
    "relu(x:F[#n]) -> y:=x[#n]",
    "relu_backward(dy:F[#n], x:=dy[#n]) -> dx:=dy[#n]",

    // ---- embedding ---------------------------------------------------------------------------------------
    "embedding(ids:i32[T], weight:W[V,H]; dtype:i) -> y:@dtype[T,H]",
    // dweight[ids[t]] += dy[t], added in order of t.
    "embedding_backward(dy:F[T,H], ids:i32[T], &dweight:f32[V,H])",

    // ---- head --------------------------------------------------------------------------------------------
    // Of softmax(x·Wᵀ / temperature), row by row, by online softmax over vocabulary tiles: log p(target),
    // entropy
    // (nats), log-sum-exp, arg-max, and where asked the expectation e = Σ_v p_v·W_v / temperature, which
    // makes
    // the gradient of a log-prob under a frozen head free of a second GEMM.
    "head_logprobs(x:F[R,H], w:W[V,H], targets:i32[R]; temperature:f)"
    " -> logprobs:f32[R], entropy:f32[R], lse:f32[R], argmax:i32[R], expectation?:f32[R,H]",
    // dx = dlogprobs·(W[target]/temperature - e).
    "head_expectation_backward(dlogprobs:f32[R], w:W[V,H], targets:i32[R], expectation:f32[R,H]; "
    "temperature:f,"
    " dtype:i) -> dx:@dtype[R,H]",
    // The general backward: recomputes the tiles; dw += (trainable head).
    "head_logprobs_backward(dlogprobs:f32[R], dentropy?:f32[R], x:F[R,H], w:W[V,H], targets:i32[R], "
    "lse:f32[R],"
    " entropy:f32[R], &dw?:f32[V,H]; temperature:f) -> dx:=x[R,H]",
    // Logits of C chosen tokens per row, and their gradient (dw += where given).
    "head_select(x:F[R,H], w:W[V,H], tokens:i32[R,C]; temperature:f) -> logits:f32[R,C]",
    "head_select_backward(dlogits:f32[R,C], x:F[R,H], w:W[V,H], tokens:i32[R,C], &dw?:f32[V,H]; "
    "temperature:f)"
    " -> dx:=x[R,H]",
    // All logits of few rows: decoding and tests only.
    "head_logits(x:F[R,H], w:W[V,H]; temperature:f) -> logits:f32[R,V]",

    // ---- advantage ---------------------------------------------------------------------------------------
    // methods.md 0; last_values bootstraps sequences that were cut.
    "gae(rewards:f32[T], values:f32[T], cu_seqlens:i32[B+1], last_values?:f32[B]; gamma:f, lam:f)"
    " -> advantages:f32[T], returns:f32[T]",
    // (x - mean)/sqrt(var + eps) over the rows with mask ≠ 0; shift_mean 0 keeps the mean; masked-out rows
    // give 0.
    "whiten(x:f32[T], mask?:f32[T]; bessel:i, shift_mean:i, eps:f) -> y:f32[T]",
    // Of rewards in groups offsets[g]..offsets[g+1]; kind 0 GRPO (sample std + eps), 1 mean only, 2
    // leave-one-out. A group of one, and for kind 0 a group of equals, gives 0.
    "group_advantages(rewards:f32[n], offsets:i32[G+1]; kind:i, eps:f) -> advantages:f32[n]",
    // y[s] = Σ x[t], t in spans[s][0]..spans[s][1]-1, over its length if mean 1 (an empty span gives 0); and
    // its gradient. Spans may overlap (steps within responses): they are added in order.
    "span_sum(x:f32[T], spans:i32[S,2]; mean:i) -> y:f32[S]",
    "span_spread(dy:f32[S], spans:i32[S,2]; T:i, mean:i) -> dx:f32[T]",

    // ---- objective ---------------------------------------------------------------------------------------
    // Loss (one number), its gradient and logged statistics in one launch. `weights` carry mask and
    // normaliser (where optional and absent: 1/n each); a row of weight 0 is not read, its gradient is 0.
    // loss = -Σ weights·logprobs.
    "nll(logprobs:f32[R], weights:f32[R]) -> loss:f32[1], dlogprobs:f32[R]",
    // loss = Σ w·[max(-A·d, -A·clip(d, 1-clip_low, 1+clip_high)) + kl_coef·KL - entropy_coef·entropy
    //           + vf_coef·½·max((V-Ret)², (clip(V, V_old±value_clip)-Ret)²)]
    // with d = exp(logprobs - old). kl: 1 k1, 2 k2, 3 k3 of logprobs - ref. value_clip ≤ 0: none. Differences
    // of log-probs are held within ±20 before exp. Rows may be tokens (PPO, GRPO) or sequences (GSPO, RLOO).
    // stats (means by w): policy, value, entropy, k1 to ref, k3 to ref, k3 to old, share of ratios outside
    // the clip range, of values outside theirs, ratio mean, ratio max, Σ w, rows with a non-finite input
    // (which make the loss NaN).
    "ppo(logprobs:f32[R], old_logprobs:f32[R], advantages:f32[R], weights:f32[R], ref_logprobs?:f32[R],"
    " entropy?:f32[R], values?:f32[R], old_values?:f32[R], returns?:f32[R];"
    " clip_low:f, clip_high:f, kl_coef:f, kl:i, entropy_coef:f, vf_coef:f, value_clip:f)"
    " -> loss:f32[1], dlogprobs:f32[R], dentropy?:f32[R], dvalues?:f32[R], stats:f32[12]",
    // StepAMC constraint on the log-probs (or logits) of the two verdict words; labels 1 positive, 0
    // negative. form 0 class_balanced, 1 ce_two, 2 ce_full, 3 mass, 4 margin (methods.md 1.2); ce_full and
    // mass need log-probs. Σ weights·term; without weights the mean, of each class for form 0.
    // stats: loss of positives, loss of negatives (plain means), Acc_pos, Acc_neg, n_pos, n_neg, mean
    // p(right) of the two, rows with a non-finite input.
    "verdict_constraint(positive:f32[R], negative:f32[R], labels:i32[R], weights?:f32[R]; form:i, margin:f)"
    " -> loss:f32[1], dpositive:f32[R], dnegative:f32[R], stats:f32[8]",
    // Σ weights·[-log σ(chosen - rejected - margin) + center·(chosen + rejected)²]. stats (means by weight):
    // accuracy, chosen - rejected, chosen, rejected.
    "pairwise(chosen:f32[n], rejected:f32[n], weights?:f32[n]; margin:f, center:f)"
    " -> loss:f32[1], dchosen:f32[n], drejected:f32[n], stats:f32[4]",
    // Of Δ = (chosen - ref_chosen) - (rejected - ref_rejected), sums over a sequence or a step, or means per
    // token. kind 0 sigmoid with label smoothing on β·Δ - margin (no reference and means: SimPO), 1 IPO
    // (Δ - 1/2β)², 2 hinge. stats (means by weight): accuracy, margin, chosen, rejected reward.
    "dpo(chosen:f32[n], rejected:f32[n], ref_chosen?:f32[n], ref_rejected?:f32[n], weights?:f32[n]; beta:f,"
    " label_smoothing:f, margin:f, kind:i)"
    " -> loss:f32[1], dchosen:f32[n], drejected:f32[n], stats:f32[4]",
    // Mean log-probs per token. Σ weights·[-chosen - beta·log σ(log odds)].
    // stats (means by weight): accuracy, log odds, chosen, rejected.
    "orpo(chosen:f32[n], rejected:f32[n], weights?:f32[n]; beta:f)"
    " -> loss:f32[1], dchosen:f32[n], drejected:f32[n], stats:f32[4]",
    // Mean of policy - ref over mismatched pairs (x_i, y_j): the reference point of kto, before its clamp.
    "kto_reference(policy:f32[n], ref:f32[n]) -> z0:f32[1]",
    // KTO over n items (responses or steps) with their own weights; z0 is detached and, below 0, taken as 0.
    // Σ weights·λ·(1 - σ(±beta·(policy - ref - z0))). kind 0 kto, 1 apo_zero (z0 = 0). stats: mean reward of
    // desirable, of undesirable, their counts.
    "kto(policy:f32[n], ref:f32[n], labels:i32[n], weights:f32[n], z0:f32[1];"
    " beta:f, lambda_d:f, lambda_u:f, kind:i) -> loss:f32[1], dpolicy:f32[n], stats:f32[4]",
    // Σ weights·BCE(σ(logit), label); labels in [0,1]. stats: accuracy at 0.5 and mean probability (by
    // weight), Σ weights, rows counted.
    "bce(logits:f32[n], labels:f32[n], weights:f32[n]) -> loss:f32[1], dlogits:f32[n], stats:f32[4]",
    // -Σ weights·log softmax(logits)[target]. stats: accuracy and mean probability of the target (by weight),
    // Σ weights, rows counted.
    "cross_entropy(logits:f32[R,C], targets:i32[R], weights:f32[R])"
    " -> loss:f32[1], dlogits:f32[R,C], stats:f32[4]",

    // ---- optimizer ---------------------------------------------------------------------------------------
    // All trainable parameters lie in one flat buffer: segment s is the next sizes[s] of them. Global norm of
    // grad_scale·grads, clip to max_norm (≤ 0: none) as torch's clip_grad_norm_, decoupled decay, bias
    // correction by `step` (from 1). A non-finite norm leaves everything untouched. stats: norm before
    // clipping, clip factor, non-finite (0 or 1).
    "adamw(&params:f32[P], grads:f32[P], &exp_avg:f32[P], &exp_avg_sq:f32[P], sizes:i32[S],"
    " weight_decay:f32[S], lr_scale?:f32[S]; lr:f, beta1:f, beta2:f, eps:f, step:i, max_norm:f, grad_scale:f)"
    " -> stats:f32[3]",

    // ---- sampling ----------------------------------------------------------------------------------------
    // Temperature, then top-k, top-p, min-p as Hugging Face orders and defines them; off at 0, 1, 0.
    // keys[row]: Philox key low, key high, counter low (token position), counter high. temperature 0: greedy.
    // logprobs under the model (temperature 1), sampling_logprobs under the filtered distribution,
    // tempered_logprobs at the temperature without the filters, as head_logprobs gives them.
    "sample(logits:f32[R,V], keys:i32[R,4]; temperature:f, top_k:i, top_p:f, min_p:f)"
    " -> tokens:i32[R], logprobs:f32[R], sampling_logprobs:f32[R], tempered_logprobs?:f32[R]",

    // ---- memory ------------------------------------------------------------------------------------------
    "copy(x:A[#n]) -> y:=x[#n]",
    "cast(x:F[#n]; dtype:i) -> y:@dtype[#n]",
    "fill(&x:A[#n]; value:f)",
    "add(x:F[#n], y:=x[#n]) -> z:=x[#n]",
    "scale(x:F[#n]; factor:f) -> y:=x[#n]",
    // y += factor·x.
    "axpy(&y:F[#n], x:F[#n]; factor:f)",
    "gather_rows(x:F[T,H], rows:i32[R]) -> y:=x[R,H]",
    // y[rows[i]] += x[i] on zeros, in order of i.
    "scatter_rows(x:F[R,H], rows:i32[R]; T:i) -> y:=x[T,H]",
    // IEEE half bytes, as read from disk.
    "decode_f16(x:u8[b]; rows:i, cols:i, dtype:i) -> y:@dtype[rows,cols]",
    // stats: largest finite |x|, number of non-finite elements.
    "finite(x:F[#n]) -> stats:f32[2]",
};

}  // namespace

const std::vector<Signature>& ops() {
  static const std::vector<Signature> list = [] {
    std::vector<Signature> parsed;
    for (const char* text : kSignatures) parsed.push_back(parse_signature(text));
    return parsed;
  }();
  return list;
}

int op_index(const std::string& name) {
  for (size_t i = 0; i < ops().size(); i++) {
    if (ops()[i].name == name) return static_cast<int>(i);
  }
  return -1;
}

}  // namespace steptrain
