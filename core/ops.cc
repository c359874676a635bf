#include "core/ops.h"

namespace steptrain {
namespace {

// T tokens, R selected rows, B sequences, H hidden, K/N in/out features, V vocabulary, r LoRA rank,
// Hq/Hk query/key heads, D head size, E = D/2, P positions or parameters,
// S segments; of experts, E of them, k for a token, S = T·k rows. The grammar is in signature.h.
const char* const kSignatures[] = {
    // ---- gemm --------------------------------------------------------------------------------------------
    // Row-major [N,K] to and from the panels that the micro-kernel reads; on CUDA a copy.
    "pack_weight(w:F[N,K]; dtype:f32|bf16) -> y:@dtype[N,K]",
    "unpack_weight(w:Q[N,K]; dtype:f32|bf16) -> y:@dtype[N,K]",
    // The bytes of a quantised weight as files have them (core/quantized.h), and the layout that products read.
    "quantize(w:F[N,K]; format:nf4|nf4_double|int8, B:i) -> bytes:u8[B]",
    "pack_quantized(bytes:u8[B]; format:nf4|nf4_double|int8|e4m3|e4m3_128|q4_0|q4_1|q4_k|q6_k|q8_0, N:i, K:i)"
    " -> y:%format[N,K]",
    // y = x·Wᵀ + bias + scale·u·Bᵀ with u = drop(x)·Aᵀ. key0 and key1 are the Philox key of the dropout mask,
    // whose counter is (row_ids[t], positions[t], k). Master weights may be f32 under bf16 activations.
    // Or the pairs of several adapters side by side, packed in the dtype of x: token t uses only
    // ranks[g][0] .. ranks[g][1]-1 of the stack and scales[g], where g = adapter[t]; -1: none. Without a stack, y may take
    // a residual, added to what y would be without it: the bits are those of linear and then add.
    "linear(x:F[T,K], w:Q[N,K], bias?:F[N], lora_a?:f32[r,K], lora_b?:f32[N,r], row_ids?:i32[T],"
    " positions?:i32[T], stack_a?:W[S,K], stack_b?:W[N,S], adapter?:i32[T], ranks?:i32[G,2], scales?:f32[G],"
    " residual?:=x[T,N];"
    " scale:f=1, dropout:f=0, key0:i=0, key1:i=0) -> y:=x[T,N], u?:f32[T,r]",
    // Puts a pair into a stack, from rank `first` on, a multiple of 32.
    "stack_lora(a:f32[r,K], b:f32[N,r], &stack_a:W[S,K], &stack_b:W[N,S]; first:i)",
    // q, k and v are linear of x, each with a weight, bias and LoRA pair of its own, and have linear's bits. With `norm`,
    // of y = RMSNorm(x)·norm, with the bits of rmsnorm; y itself is not kept.
    "linear_qkv(x:F[T,K], w_q:Q[N,K], w_k:Q[M,K], w_v:Q[L,K], q_bias?:F[N], k_bias?:F[M], v_bias?:F[L],"
    " q_a?:f32[r,K], q_b?:f32[N,r], k_a?:f32[s,K], k_b?:f32[M,s], v_a?:f32[t,K], v_b?:f32[L,t], norm?:F[K];"
    " q_scale:f=1, k_scale:f=1, v_scale:f=1, eps:f=0) -> q:=x[T,N], k:=x[T,M], v:=x[T,L]",
    // Likewise, where all have stacks of pairs, or some of them have.
    "linear_qkv_stack(x:F[T,K], w_q:Q[N,K], w_k:Q[M,K], w_v:Q[L,K], adapter:i32[T], q_bias?:F[N], k_bias?:F[M],"
    " v_bias?:F[L], q_stack_a?:W[Q,K], q_stack_b?:W[N,Q], q_ranks?:i32[G,2], q_scales?:f32[G],"
    " k_stack_a?:W[R,K], k_stack_b?:W[M,R], k_ranks?:i32[G,2], k_scales?:f32[G], v_stack_a?:W[S,K],"
    " v_stack_b?:W[L,S], v_ranks?:i32[G,2], v_scales?:f32[G]) -> q:=x[T,N], k:=x[T,M], v:=x[T,L]",
    // y = silu(gate)·up with the bits of linear, linear, swiglu: gate and up are linear of x, each with a weight
    // and LoRA pair (of rank r and s) of its own. The gradient needs gate and up. `norm` as in linear_qkv.
    "linear_swiglu(x:F[T,K], w_gate:Q[N,K], w_up:Q[N,K], gate_a?:f32[r,K], gate_b?:f32[N,r], up_a?:f32[s,K],"
    " up_b?:f32[N,s], row_ids?:i32[T], positions?:i32[T], norm?:F[K];"
    " gate_scale:f=1, up_scale:f=1, dropout:f=0, gate_key0:i=0, gate_key1:i=0, up_key0:i=0, up_key1:i=0,"
    " eps:f=0)"
    " -> y:=x[T,N], gate?:=x[T,N], up?:=x[T,N], gate_u?:f32[T,r], up_u?:f32[T,s]",
    // y = silu(gate)·up, likewise, where gate and up have stacks of pairs, or one of them has.
    "linear_swiglu_stack(x:F[T,K], w_gate:Q[N,K], w_up:Q[N,K], adapter:i32[T], gate_stack_a?:W[R,K],"
    " gate_stack_b?:W[N,R], gate_ranks?:i32[G,2], gate_scales?:f32[G], up_stack_a?:W[S,K], up_stack_b?:W[N,S],"
    " up_ranks?:i32[G,2], up_scales?:f32[G]) -> y:=x[T,N]",
    // dx (+)= dy·W + mask·(v·A) with v = scale·dy·B; accumulate adds to the dx that is passed. With x, u, da and db also
    // the pair's gradients: da += vᵀ·drop(x), db += scale·dyᵀ·u.
    "linear_dx(dy:F[T,N], w:Q[N,K], lora_a?:f32[r,K], lora_b?:f32[N,r], row_ids?:i32[T], positions?:i32[T],"
    " x?:F[T,K], u?:f32[T,r], &da?:f32[r,K], &db?:f32[N,r];"
    " scale:f=1, dropout:f=0, key0:i=0, key1:i=0, accumulate:bool=false) -> dx:=dy[T,K], v?:f32[T,r]",
    // dw += dyᵀ·x, db += column sums of dy.
    "linear_dw(x:F[T,K], dy:F[T,N], &dw?:f32[N,K], &db?:f32[N])",

    // ---- experts -----------------------------------------------------------------------------------------
    // Mixture of experts. p = softmax(logits) in f32; each token goes to the k experts of its largest logits (of equal ones
    // the first), weighted by p, with `normalise` by p over the sum of these k. The S = T·k pairs of a token and an expert are
    // rows in order of experts, those of an expert in order of t, then j: rows, read as [S], has the token of each,
    // places[t,j] the row of the j-th expert of t, and expert e has the rows offsets[e] .. offsets[e+1]-1. With `adapter`,
    // where -1 is none, each adapter has groups of its own: P is E times one more than there are adapters, and rows are in
    // order of (adapter[t] + 1)·E + e; else P is E. A token with a
    // logit NaN or +infinity still has k experts, of weight NaN.
    "route(logits:F[T,E], adapter?:i32[T]; k:i, normalise:bool=true, P:i)"
    " -> weights:f32[T,k], experts:i32[T,k], places:i32[T,k], rows:i32[T,k], offsets:i32[P+1]",
    // balance[e] is a further gradient of p[t,e] of every token, such as that of a loss that balances the experts.
    "route_backward(dweights:f32[T,k], logits:F[T,E], weights:f32[T,k], experts:i32[T,k], balance?:f32[E];"
    " normalise:bool=true) -> dlogits:=logits[T,E]",
    // z[t] = Σ_j weights[t,j]·y[places[t,j]], in f32 and in order of j. Each row is the place of one pair.
    "combine_experts(y:F[S,H], places:i32[T,k], weights:f32[T,k]) -> z:=y[T,H]",
    "combine_experts_backward(dz:F[T,H], y:=dz[S,H], places:i32[T,k], weights:f32[T,k])"
    " -> dy:=dz[S,H], dweights:f32[T,k]",
    // linear, linear_dx, the gradients of a pair and linear_dw of the rows of each expert with its own weight and pair. On the
    // CPU rows have the bits of those. An expert without rows costs nothing, and its gradients stay as they are. row_ids and
    // positions are those of rows, the key is that of all experts. P is a multiple of E: group p has the weight of expert
    // p mod E. The first P - G groups have no pair, the others one each, of a scale each where there are `scales`. u needs
    // G = P.
    "linear_experts(x:F[S,K], w:Q[E,N,K], offsets:i32[P+1], lora_a?:f32[G,r,K], lora_b?:f32[G,N,r], scales?:f32[G],"
    " row_ids?:i32[S], positions?:i32[S]; scale:f=1, dropout:f=0, key0:i=0, key1:i=0) -> y:=x[S,N], u?:f32[S,r]",
    "linear_experts_dx(dy:F[S,N], w:Q[E,N,K], offsets:i32[E+1], lora_a?:f32[E,r,K], lora_b?:f32[E,N,r],"
    " row_ids?:i32[S], positions?:i32[S];"
    " scale:f=1, dropout:f=0, key0:i=0, key1:i=0, accumulate:bool=false) -> dx:=dy[S,K], v?:f32[S,r]",
    "linear_experts_lora_grads(x:F[S,K], dy:F[S,N], u:f32[S,r], v:f32[S,r], offsets:i32[E+1], &da:f32[E,r,K],"
    " &db:f32[E,N,r], row_ids?:i32[S], positions?:i32[S]; scale:f=1, dropout:f=0, key0:i=0, key1:i=0)",
    "linear_experts_dw(x:F[S,K], dy:F[S,N], offsets:i32[E+1], &dw:f32[E,N,K])",
    // Puts a weight, packed, quantised or neither, into its place among E of one layout, which lie one after the other. A view of
    // one of them is such a weight again. The others stay as they are; in a new tensor they are undefined.
    "stack_weight(w:Q[N,K]; E:i, expert:i) -> stack:=w[E,N,K]",

    // ---- attention ---------------------------------------------------------------------------------------
    // Key j is visible to query i of the same sequence where j ≤ i (causal), i - j < window (window > 0) and
    // branch[j] is 0 or branch[i]. lse = log Σ exp(scale·qk), natural logarithm.
    "attention(q:F[T,Hq,D], k:F[T,Hk,D], v:F[T,Hk,D], cu_seqlens:i32[B+1], branch?:i32[T];"
    " causal:bool=true, window:i=0, scale:f) -> o:=q[T,Hq,D], lse:f32[Hq,T]",
    "attention_backward(do:F[T,Hq,D], q:F[T,Hq,D], k:F[T,Hk,D], v:F[T,Hk,D], o:F[T,Hq,D], lse:f32[Hq,T],"
    " cu_seqlens:i32[B+1], branch?:i32[T]; causal:bool=true, window:i=0, scale:f)"
    " -> dq:=q[T,Hq,D], dk:=q[T,Hk,D], dv:=q[T,Hk,D]",

    // Disentangled attention (DeBERTa), bidirectional: softmax(scale·(q_i·k_j + q_i·pos_k_b + k_j·pos_q_b)) over the
    // keys j of the same sequence, where b is the bucket of i - j: P/2 ± buckets[|i - j|], held within 0 .. P-1.
    // buckets begin at 0 and grow by at most 1. Only products with the buckets of a tile are ever held.
    "disentangled_attention(q:F[T,H,D], k:=q[T,H,D], v:=q[T,H,D], pos_q:=q[P,H,D], pos_k:=q[P,H,D],"
    " buckets:i32[M], cu_seqlens:i32[B+1]; scale:f) -> o:=q[T,H,D], lse:f32[H,T]",
    "disentangled_attention_backward(do:F[T,H,D], q:=do[T,H,D], k:=do[T,H,D], v:=do[T,H,D], pos_q:=do[P,H,D],"
    " pos_k:=do[P,H,D], o:=do[T,H,D], lse:f32[H,T], buckets:i32[M], cu_seqlens:i32[B+1]; scale:f)"
    " -> dq:=q[T,H,D], dk:=q[T,H,D], dv:=q[T,H,D], dpos_q:=q[P,H,D], dpos_k:=q[P,H,D]",

    // The cache of keys and values: pages of 64 tokens of one layer, E = 2·64·Hk·D elements with D rounded up
    // to a multiple of 16, in the order in which the device's kernels read them. slots[t] = page·64 + place
    // in the page, all different; -1 writes nothing. With cos, sin and positions, keys are rotated first,
    // with the bits of rope, and so is q, which comes back as rotated. With weights each head of k, and of q,
    // first takes its RMSNorm, on the CPU and of up to 256 elements with the bits of rmsnorm.
    "cache_write(k:F[T,Hk,D], v:=k[T,Hk,D], slots:i32[T], &cache:=k[P,E], cos?:f32[M,h], sin?:f32[M,h],"
    " positions?:i32[T], k_weight?:F[D], q?:=k[T,Hq,D], q_weight?:F[D]; eps:f=0) -> rotated?:=k[T,Hq,D]",
    // A step of decoding continues the one before, whose row s drew tokens[s] after lengths[s] tokens: row r is
    // row rows[r] of that step, and its token stands at positions[r], in slot slots[r]; next_lengths[r] counts it.
    // -1: nothing, of length 0, in no slot.
    "advance(tokens:i32[S], lengths:i32[S], rows:i32[R], pages:i32[R,N])"
    " -> ids:i32[R], positions:i32[R], slots:i32[R], next_lengths:i32[R]",
    // Whole pages, in order of c.
    "cache_copy(&cache:F[P,E], from:i32[C], to:i32[C])",
    // Row r has queries query_offsets[r] .. query_offsets[r+1]-1; the last one is at key lengths[r] - 1. The
    // visible keys of a query are those up to its own, with window > 0 only the last `window` of them.
    // pages[r,i] holds keys 64·i .. 64·i+63; it is not read if they are masked for every query of the row.
    // The o of a row of length 0 is 0.
    "attention_paged(q:F[T,Hq,D], cache:=q[P,E], query_offsets:i32[R+1], pages:i32[R,N], lengths:i32[R];"
    " window:i=0, scale:f) -> o:=q[T,Hq,D]",
    // A step of decoding: row r has one query, at key lengths[r] - 1. cache_write with lengths[r] - 1 for its position
    // and with the place of that key in pages[r] for its slot, then attention_paged, with the bits of both, where no row sees
    // the new key of another; a row of length 0 writes nothing.
    "attention_step(q:F[R,Hq,D], k:=q[R,Hk,D], v:=q[R,Hk,D], &cache:=q[P,E], pages:i32[R,N], lengths:i32[R],"
    " cos:f32[M,h], sin:f32[M,h], k_weight?:F[D], q_weight?:F[D]; eps:f=0, window:i=0, scale:f) -> o:=q[R,Hq,D]",

    // ---- norm --------------------------------------------------------------------------------------------
    // sum = x + residual (or x); y = sum · rsqrt(mean(sum²) + eps) · weight.
    "rmsnorm(x:F[T,H], weight:F[H], residual?:=x[T,H]; eps:f) -> y:=x[T,H], sum?:=x[T,H], rstd:f32[T]",
    // dx = dsum + ∂y/∂sum·dy; accumulated into: dweight.
    "rmsnorm_backward(dy:F[T,H], sum:=dy[T,H], weight:F[H], rstd:f32[T], dsum?:=dy[T,H], &dweight?:f32[H])"
    " -> dx:=dy[T,H]",
    // y = (sum - mean(sum)) · rsqrt(variance(sum) + eps) · weight + bias.
    "layernorm(x:F[T,H], weight:F[H], bias?:F[H], residual?:=x[T,H]; eps:f)"
    " -> y:=x[T,H], sum?:=x[T,H], mean:f32[T], rstd:f32[T]",
    "layernorm_backward(dy:F[T,H], sum:=dy[T,H], weight:F[H], mean:f32[T], rstd:f32[T], dsum?:=dy[T,H],"
    " &dweight?:f32[H], &dbias?:f32[H]) -> dx:=dy[T,H]",

    // ---- rope --------------------------------------------------------------------------------------------
    // Halves rotate as in Hugging Face models: (a, b) -> (a·cos - b·sin, b·cos + a·sin); inverse rotates back,
    // as the gradient does.
    // partial: tables may be narrower than half a head, whose first 2·E elements then turn.
    "rope(x:F[T,Hq,D], cos:f32[P,E], sin:f32[P,E], positions:i32[T]; inverse:bool=false, partial:bool=false)"
    " -> y:=x[T,Hq,D]",

    // ---- recurrence --------------------------------------------------------------------------------------
    // Causal depthwise convolution and SiLU: y[t,c] = silu(Σ_j weight[c,0,L-j]·x[t_j,c]) over t_0 = t and the L tokens before
    // it, t_j that before t_{j-1}. The token before the first one of a branch is the last one of the trunk before it; a branch
    // is one run of tokens, and branches are numbered upwards. With state, slots and lengths a sequence continues state[slot],
    // the L inputs before it, unless its lengths[b] tokens are all here, and leaves its own there; slot -1: none.
    "causal_conv1d(x:F[T,C], weight:F[C,1,L+1], cu_seqlens:i32[B+1], branch?:i32[T], &state?:=x[S,L,C], slots?:i32[B],"
    " lengths?:i32[B]) -> y:=x[T,C]",
    "causal_conv1d_backward(dy:F[T,C], x:=dy[T,C], weight:F[C,1,L+1], cu_seqlens:i32[B+1], branch?:i32[T],"
    " &dweight?:f32[C,1,L+1]) -> dx:=dy[T,C]",
    // The gated delta rule (arXiv 2412.06464) of H value heads, which share the G key heads in groups; qkv has G queries and G
    // keys of K elements, divided by their norms, then H values of V. With α = exp(-exp(a_log)·softplus(a + dt_bias)) and
    // β = σ(b): δ = β·(v - α·Sᵀk), S = α·S + k·δᵀ, o = Sᵀq/√K. Branches, state (S of each head), slots and lengths as above.
    "gated_delta_rule(qkv:F[T,C], a:=qkv[T,H], b:=qkv[T,H], a_log:F[H], dt_bias:F[H], cu_seqlens:i32[B+1],"
    " branch?:i32[T], &state?:f32[S,H,K,V], slots?:i32[B], lengths?:i32[B]; G:i, K:i, V:i) -> o:=qkv[T,H,V]",
    "gated_delta_rule_backward(do:F[T,H,V], qkv:=do[T,C], a:=do[T,H], b:=do[T,H], a_log:F[H], dt_bias:F[H],"
    " cu_seqlens:i32[B+1], branch?:i32[T], &da_log?:f32[H], &ddt_bias?:f32[H]; G:i, K:i)"
    " -> dqkv:=do[T,C], da:=do[T,H], db:=do[T,H]",

    // ---- mlp ---------------------------------------------------------------------------------------------
    "swiglu(gate:F[T,N], up:=gate[T,N]) -> y:=gate[T,N]",
    "swiglu_backward(dy:F[T,N], gate:=dy[T,N], up:=dy[T,N]) -> dgate:=dy[T,N], dup:=dy[T,N]",
    // y = σ(gate)·x.
    "sigmoid_gate(gate:F[T,N], x:=gate[T,N]) -> y:=gate[T,N]",
    "sigmoid_gate_backward(dy:F[T,N], gate:=dy[T,N], x:=dy[T,N]) -> dgate:=dy[T,N], dx:=dy[T,N]",
    "gelu(x:F[#n]; tanh:bool=false) -> y:=x[#n]",
    "gelu_backward(dy:F[#n], x:=dy[#n]; tanh:bool=false) -> dx:=dy[#n]",
    "relu(x:F[#n]) -> y:=x[#n]",
    "relu_backward(dy:F[#n], x:=dy[#n]) -> dx:=dy[#n]",

    // ---- embedding ---------------------------------------------------------------------------------------
    "embedding(ids:i32[T], weight:Q[V,H]; dtype:f32|bf16) -> y:@dtype[T,H]",
    // dweight[ids[t]] += dy[t], added in order of t.
    "embedding_backward(dy:F[T,H], ids:i32[T], &dweight:f32[V,H])",

    // ---- head --------------------------------------------------------------------------------------------
    // log p(target), entropy (nats), log-sum-exp, arg-max and, where asked for, the expectation
    // e = Σ_v p_v·W_v / temperature of each row's softmax(x·Wᵀ / temperature), by an online softmax over
    // vocabulary tiles. With e the gradient of a log-prob under a frozen head needs no second GEMM.
    "head_logprobs(x:F[R,H], w:Q[V,H], targets:i32[R]; temperature:f=1)"
    " -> logprobs:f32[R], entropy:f32[R], lse:f32[R], argmax:i32[R], expectation?:f32[R,H]",
    // dx = dlogprobs·(W[target]/temperature - e).
    "head_expectation_backward(dlogprobs:f32[R], w:Q[V,H], targets:i32[R], expectation:f32[R,H];"
    " temperature:f=1, dtype:f32|bf16) -> dx:@dtype[R,H]",
    // The general backward computes the tiles again; dw += where the head trains.
    "head_logprobs_backward(dlogprobs:f32[R], dentropy?:f32[R], x:F[R,H], w:Q[V,H], targets:i32[R],"
    " lse:f32[R], entropy:f32[R], &dw?:f32[V,H]; temperature:f=1) -> dx:=x[R,H]",
    // Logits of C chosen tokens per row, and their gradient (dw += where given).
    "head_select(x:F[R,H], w:Q[V,H], tokens:i32[R,C]; temperature:f=1) -> logits:f32[R,C]",
    "head_select_backward(dlogits:f32[R,C], x:F[R,H], w:Q[V,H], tokens:i32[R,C], &dw?:f32[V,H];"
    " temperature:f=1) -> dx:=x[R,H]",
    // All logits of few rows: decoding and tests only.
    "head_logits(x:F[R,H], w:Q[V,H]; temperature:f=1) -> logits:f32[R,V]",

    // ---- advantage ---------------------------------------------------------------------------------------
    // Generalised advantage estimation: δ_t = r_t + gamma·V_{t+1} - V_t, A_t = δ_t + gamma·lam·A_{t+1}, returns
    // A + V. last_values are the values after the last tokens of sequences that were cut.
    "gae(rewards:f32[T], values:f32[T], cu_seqlens:i32[B+1], last_values?:f32[B]; gamma:f=1, lam:f=0.95)"
    " -> advantages:f32[T], returns:f32[T]",
    // (x - mean)/sqrt(var + eps) over the rows with mask ≠ 0; the others give 0. Without shift_mean the mean
    // stays; bessel divides the variance by n - 1.
    "whiten(x:f32[T], mask?:f32[T]; bessel:bool=true, shift_mean:bool=true, eps:f=1e-8) -> y:f32[T]",
    // Rewards r in groups offsets[g]..offsets[g+1] give (r - mean)/(sample deviation + eps), r - mean, or r -
    // mean of the others. A group of one gives 0, and so does a group of equals under grpo.
    "group_advantages(rewards:f32[n], offsets:i32[G+1]; kind:grpo|mean|leave_one_out=grpo, eps:f=1e-4)"
    " -> advantages:f32[n]",
    // y[s] = Σ x[t] over t = spans[s][0] .. spans[s][1]-1, or their mean (an empty span gives 0), and its
    // gradient. Spans may overlap (steps within responses): they are added in order. Times weights[s], if given.
    "span_sum(x:f32[T], spans:i32[S,2], weights?:f32[S]; mean:bool=false) -> y:f32[S]",
    "span_spread(dy:f32[S], spans:i32[S,2], weights?:f32[S]; T:i, mean:bool=false) -> dx:f32[T]",

    // ---- objective ---------------------------------------------------------------------------------------
    // Loss (one number), its gradient and logged statistics in one launch. `weights` carry mask and normaliser
    // (where they are optional and absent: 1/n each); a row of weight 0 is not read, its gradient is 0.

    // loss = -Σ weights·logprobs.
    "nll(logprobs:f32[R], weights:f32[R]) -> loss:f32[1], dlogprobs:f32[R]",
    // loss = Σ w·[surrogate + kl_coef·KL - entropy_coef·entropy
    //           + vf_coef·½·max((V-Ret)², (clip(V, V_old±value_clip)-Ret)²)]
    // surrogate: max(-A·d, -A·clip(d, 1-clip_low, 1+clip_high)); of cispo -A·clip(d)·logprobs, clip(d) constant;
    // of sapo -A·(4/τ)·σ(τ·(d-1)) with τ = tau_pos where A > 0, else tau_neg;
    // d = exp(logprobs - old), and KL(policy ‖ ref) estimated by k1, k2 or k3 from logprobs - ref.
    // value_clip ≤ 0: none. Differences of log-probs are held within ±20 before exp. Rows may be tokens (PPO,
    // GRPO) or sequences (GSPO, RLOO). stats (means by w): policy, value, entropy, k1 to ref, k3 to ref, k3 to
    // old, share of ratios outside the clip range, of values outside theirs, ratio mean, ratio max, Σ w, rows
    // with a non-finite input (which make the loss NaN).
    "ppo(logprobs:f32[R], old_logprobs:f32[R], advantages:f32[R], weights:f32[R], ref_logprobs?:f32[R],"
    " entropy?:f32[R], values?:f32[R], old_values?:f32[R], returns?:f32[R];"
    " clip_low:f=0.2, clip_high:f=0.2, kl_coef:f=0, kl:k1|k2|k3=k3, entropy_coef:f=0, vf_coef:f=0.1,"
    " value_clip:f=0, surrogate:clip|cispo|sapo=clip, tau_pos:f=1, tau_neg:f=1.05)"
    " -> loss:f32[1], dlogprobs:f32[R], dentropy?:f32[R], dvalues?:f32[R], stats:f32[12]",
    // StepAMC's constraint on the log-probs (or logits) of the two verdict words; labels 1 positive, 0 negative.
    // class_balanced_full, ce_full and mass need log-probs. Σ weights·term; without weights the mean, under
    // class_balanced and class_balanced_full that of each class. stats: loss of positives, loss of negatives (plain means), Acc_pos, Acc_neg, n_pos, n_neg,
    // mean p(right) of the two, rows with a non-finite input.
    "verdict_constraint(positive:f32[R], negative:f32[R], labels:i32[R], weights?:f32[R];"
    " form:class_balanced|ce_two|ce_full|mass|margin|class_balanced_full=class_balanced_full, margin:f=1)"
    " -> loss:f32[1], dpositive:f32[R], dnegative:f32[R], stats:f32[8]",
    // Σ weights·[-log σ(chosen - rejected - margin) + center·(chosen + rejected)²]. stats (means by weight):
    // accuracy, chosen - rejected, chosen, rejected.
    "pairwise(chosen:f32[n], rejected:f32[n], weights?:f32[n]; margin:f=0, center:f=0)"
    " -> loss:f32[1], dchosen:f32[n], drejected:f32[n], stats:f32[4]",
    // Losses of Δ = (chosen - ref_chosen) - (rejected - ref_rejected), where log-probs are sums over a sequence
    // or a step, or means per token. sigmoid: -log σ(β·Δ - margin) with label smoothing (on means without a
    // reference: SimPO); ipo: (Δ - 1/2β)²; hinge: max(0, 1 - β·Δ + margin). stats (means by weight): accuracy,
    // margin, chosen and rejected reward.
    "dpo(chosen:f32[n], rejected:f32[n], ref_chosen?:f32[n], ref_rejected?:f32[n], weights?:f32[n];"
    " beta:f=0.1, label_smoothing:f=0, margin:f=0, kind:sigmoid|ipo|hinge=sigmoid)"
    " -> loss:f32[1], dchosen:f32[n], drejected:f32[n], stats:f32[4]",
    // Σ weights·[-chosen - beta·log σ(log odds)] of mean log-probs per token. stats (means by weight): accuracy,
    // log odds, chosen, rejected.
    "orpo(chosen:f32[n], rejected:f32[n], weights?:f32[n]; beta:f=0.1)"
    " -> loss:f32[1], dchosen:f32[n], drejected:f32[n], stats:f32[4]",
    // Mean of policy - ref over mismatched pairs (x_i, y_j): the reference point of kto, before its clamp.
    "kto_reference(policy:f32[n], ref:f32[n]) -> z0:f32[1]",
    // Σ weights·λ·(1 - σ(±beta·(policy - ref - z0))) over n items (responses or steps); λ is lambda_d and the
    // sign is + for desirable ones. No gradient flows into z0. A z0 below 0 counts as 0; apo_zero takes z0 = 0.
    // stats: mean reward of desirable items, mean reward of undesirable ones, their counts.
    "kto(policy:f32[n], ref:f32[n], labels:i32[n], weights:f32[n], z0:f32[1];"
    " beta:f=0.1, lambda_d:f=1, lambda_u:f=1, kind:kto|apo_zero=kto)"
    " -> loss:f32[1], dpolicy:f32[n], stats:f32[4]",
    // kto of answers (the first `outcomes` items) and of their steps (the others) in one launch; a pair of scalars is
    // for answers and for steps, as is z0, and a z0 below 0 counts as 0. stats, for answers and then for steps: loss;
    // Σ |dpolicy|·lengths, the gradient on tokens; mean rewards of undesirable and of desirable items; their counts.
    "step_kto(policy:f32[n], ref:f32[n], labels:i32[n], weights:f32[n], lengths:f32[n], z0:f32[2];"
    " outcomes:i, beta:f=0.1, beta_step:f=0.1, lambda_d:f=1, lambda_d_step:f=1, lambda_u:f=1,"
    " lambda_u_step:f=1)"
    " -> loss:f32[1], dpolicy:f32[n], stats:f32[12]",
    // Σ weights·D(student, teacher) of the softmax of two rows of logits: KL(teacher ‖ student) at beta 0, KL(student ‖
    // teacher) at beta 1, else beta·KL(teacher ‖ m) + (1 - beta)·KL(student ‖ m), m = (1 - beta)·student + beta·teacher.
    // stats (means by weight): KL(student ‖ teacher), KL(teacher ‖ student), entropy of the student, share of rows with
    // one arg-max; Σ weights.
    "divergence(student:f32[R,V], teacher:f32[R,V], weights:f32[R]; beta:f=1)"
    " -> loss:f32[1], dstudent:f32[R,V], stats:f32[5]",
    // Σ weights·KL(student ‖ teacher) of two classes, a token and all others, from the two log-probs of that token. stats:
    // mean by weight of student - teacher, Σ weights.
    "sampled_divergence(student:f32[R], teacher:f32[R], weights:f32[R])"
    " -> loss:f32[1], dstudent:f32[R], stats:f32[2]",
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
    " weight_decay:f32[S], lr_scale?:f32[S]; lr:f, beta1:f=0.9, beta2:f=0.999, eps:f=1e-8, step:i,"
    " max_norm:f=0, grad_scale:f=1) -> stats:f32[3]",

    // The sum of squares of each 32,768 elements, of which adamw adds up its norm: f64, as the two halves of its bits. Of
    // the parts of a buffer that lie in several processes, which begin at multiples of it.
    "square_sums(x:f32[P], &sums:i32[C,2])",

    // ---- sampling ----------------------------------------------------------------------------------------
    // Temperature, then top-k, top-p, min-p as Hugging Face orders and defines them; 0, 1, 0 switch them off.
    // The default of an absent tensor is temperature 1 or no filter. temperature 0: greedy. bias[i] is added
    // to the logit of bias_tokens[i], i in bias_offsets[r] .. bias_offsets[r+1]-1; if the row's range of
    // `allowed` is not empty, only its tokens may be drawn. keys[row]: Philox key low, key high, counter low
    // (token position), counter high. logprobs under the model (temperature 1), sampling_logprobs under the
    // distribution that is drawn from, tempered_logprobs at the temperature alone, as head_logprobs gives
    // them. status 1: a logit is NaN or +infinity, or no token is left; the row's other outputs are then 0.
    "sample(logits:f32[R,V], keys:i32[R,4], temperature?:f32[R], top_k?:i32[R], top_p?:f32[R], min_p?:f32[R],"
    " bias_offsets?:i32[R+1], bias_tokens?:i32[b], bias?:f32[b], allowed_offsets?:i32[R+1], allowed?:i32[A])"
    " -> tokens:i32[R], logprobs:f32[R], sampling_logprobs:f32[R], tempered_logprobs?:f32[R], status:i32[R]",

    // ---- memory ------------------------------------------------------------------------------------------
    "copy(x:A[#n]) -> y:=x[#n]",
    "cast(x:F[#n]; dtype:f32|bf16) -> y:@dtype[#n]",
    "fill(&x:A[#n]; value:f)",
    "add(x:F[#n], y:=x[#n]) -> z:=x[#n]",
    "scale(x:F[#n]; factor:f) -> y:=x[#n]",
    // y += factor·x.
    "axpy(&y:F[#n], x:F[#n]; factor:f)",
    "gather_rows(x:A[T,H], rows:i32[R]) -> y:=x[R,H]",
    // y[rows[i]] += x[i] on zeros, in order of i.
    "scatter_rows(x:F[R,H], rows:i32[R]; T:i) -> y:=x[T,H]",
    // Each row in two, and two rows in one: N is 2·D.
    "split_halves(x:F[R,N]; D:i) -> first:=x[R,D], second:=x[R,D]",
    "join_halves(first:F[R,D], second:=first[R,D]; N:i) -> y:=first[R,N]",
    // IEEE half bytes, as read from disk.
    "decode_f16(x:u8[b]; rows:i, cols:i, dtype:f32|bf16) -> y:@dtype[rows,cols]",
    // stats: largest finite |x|, number of non-finite elements.
    "finite(x:F[#n]) -> stats:f32[2]",

    // ---- collectives -------------------------------------------------------------------------------------
    // Among the W processes of a communicator (carriers/communicators.h), which call them in the same order. Row r of x
    // goes to rank r, and row r of y comes from it. Not in a graph. `beside`: the bytes travel beside what is queued next,
    // which leaves x and y alone until `arrived`.
    "all_to_all(x:F[W,N], &y:=x[W,N]; communicator:i, beside:bool=false)",
    // Row r of y is the x of rank r.
    "all_gather(x:F[N], &y:=x[W,N]; communicator:i, beside:bool=false)",
    // What is queued next waits for all that travels beside the queue; y came last.
    "arrived(&y:F[#n]; communicator:i)",
    // Rows of x added in pairs, one after the other: row pairs[p][0] += row pairs[p][1]. y is what row `root` then is.
    "sum_slices(x:f32[R,N], pairs:i32[P,2]; root:i) -> y:f32[N]",
};

}  // namespace

const std::vector<Signature>& ops() {
  // Never freed: a process may exit while a queue's thread still runs its ops.
  static const auto& list = *new std::vector<Signature>([] {
    std::vector<Signature> parsed;
    for (const char* text : kSignatures) parsed.push_back(parse_signature(text));
    return parsed;
  }());
  return list;
}

int op_index(const std::string& name) {
  for (size_t i = 0; i < ops().size(); i++) {
    if (ops()[i].name == name) return static_cast<int>(i);
  }
  return -1;
}

}  // namespace steptrain
