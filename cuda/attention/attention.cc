// Attention over ragged sequences, o = softmax(scale·q·kᵀ, visible keys)·v with lse, both =. Chooses the
// kernel: bf16 on tensor cores (cuda/attention/sm90_forward*.cu, forward_bf16.cu); f32, odd head sizes and odd
// addresses on the ordinary cores (portable.cu). Keys come in tiles of fixed size from the sequence's own
// token 0 and sums run in their order, so a row's bits depend on its own sequence alone. No T × T matrix is
// held. Two launches: plan, kernel.
#include "cuda/attention/problem.h"
#include "cuda/runtime/families.h"

/// Tokens a sequence, on average, from which on Hopper's blocks take a tile of queries each instead of drawing tiles:
/// of one sequence of 16,384 an H100 took 2 to 7 % less so, of four of 4,096 6 to 11 % more. Both have the same bits.
/// The emulator's tests use a smaller one.
#ifndef STEPTRAIN_LONG_SEQUENCE
#define STEPTRAIN_LONG_SEQUENCE 8192
#endif

namespace steptrain::cuda {
namespace {

void attention(Stream& stream, const Args& args) {
  const auto [q, k, v, cu_seqlens, branch, o, lse] = args.tensors<7>();
  const bool tensor_cores = on_tensor_cores(q, {q, k, v, o}) && args.f(2) > 0;
  const bool hopper = tensor_cores && on_hopper(stream, q[2]);
  const Attention problem = plan_attention(stream, "attention", q, k, v, cu_seqlens, 3, branch, args,
                                           hopper         ? kHopperRows
                                           : tensor_cores ? forward_bf16_rows(q[2])
                                                          : kPortableRows);
  const AttentionTensors tensors{q.data,  k.data, v.data,  nullptr, nullptr,
                                 nullptr, o.data, nullptr, nullptr, nullptr};
#ifdef STEPTRAIN_SM90
  if (hopper && problem.tokens < int64_t{STEPTRAIN_LONG_SEQUENCE} * problem.sequences)
    return attention_forward_sm90_persistent(stream, problem, tensors, lse.as<float>());
  if (hopper) return attention_forward_sm90(stream, problem, tensors, lse.as<float>());
#endif
  if (tensor_cores) return attention_forward_bf16(stream, problem, tensors, lse.as<float>());
  attention_forward_portable(stream, problem, tensors, lse.as<float>(), q.dtype);
}

}  // namespace

void register_attention(KernelTable& table) {
  table.set("attention", attention);
}

}  // namespace steptrain::cuda
