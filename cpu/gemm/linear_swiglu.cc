// linear_swiglu: y[T,N] = silu(gate)·up of gate = x·W_gateᵀ and up = x·W_upᵀ, each with a LoRA pair of its
// own, of x or of its RMSNorm; all outputs are overwritten.
#include "cpu/gemm/normed.h"
#include "cpu/gemm/swiglu.h"
#include "cpu/runtime/families.h"

namespace steptrain::cpu::STEPTRAIN_ISA {
namespace {

template <typename T>
void swiglu_of_pairs(Stream& stream, const Args& args) {
  const auto [rows, w_gate, w_up, gate_a, gate_b, up_a, up_b, row_ids, positions, norm, y, gate, up, gate_u,
              up_u] = args.tensors<15>();
  const int64_t tokens = rows[0];
  const Dropout gate_dropout = dropout_of("linear_swiglu", tokens, gate_a, gate_b, row_ids, positions,
                                          args.d(2), args.i(3), args.i(4));
  const Dropout up_dropout =
      dropout_of("linear_swiglu", tokens, up_a, up_b, row_ids, positions, args.d(2), args.i(5), args.i(6));
  if ((gate_u && !gate_a) || (up_u && !up_a))
    throw Error("E_SHAPE", "linear_swiglu: gate_u and up_u are the LoRA pairs'; pass a pair or no u");
  const Projection<T> gates(stream, w_gate, gate_a, gate_b, gate_u, tokens, args.f(0), gate_dropout);
  const Projection<T> ups(stream, w_up, up_a, up_b, up_u, tokens, args.f(1), up_dropout);
  const TensorView x = normed<T>(stream, rows, norm, args.f(7));
  multiply_swiglu(stream, x, gates, ups, y, gate, up);
}

void linear_swiglu(Stream& stream, const Args& args) {
  args.tensor[0].dtype == DType::bf16 ? swiglu_of_pairs<bf16>(stream, args)
                                      : swiglu_of_pairs<float>(stream, args);
}

}  // namespace

void register_linear_swiglu(KernelTable& table) {
  table.set("linear_swiglu", linear_swiglu);
}

}  // namespace steptrain::cpu::STEPTRAIN_ISA
