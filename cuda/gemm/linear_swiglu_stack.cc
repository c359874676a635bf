// linear_swiglu_stack: y = silu(gate)·up, where gate and up are linear's outputs of x with a stack of LoRA pairs each, or
// one of them. linear's kernels for both, then the elementwise one.
#include "cuda/gemm/quantized.h"
#include "cuda/gemm/stack.h"
#include "cuda/mlp.h"
#include "cuda/runtime/families.h"

namespace steptrain::cuda {
namespace {

constexpr int kAdapter = 3, kGateRanks = 6, kUpRanks = 10;  // among the inputs

void linear_swiglu_stack(Stream& stream, const Args& args) {
  const auto [x, w_gate, w_up, adapter, gate_a, gate_b, gate_ranks, gate_scales, up_a, up_b, up_ranks,
              up_scales, y] = args.tensors<13>();
  const TensorView none;
  const Stack gate_stack{gate_a,   gate_b,    gate_a ? adapter : none, gate_ranks, gate_scales,
                         kAdapter, kGateRanks};
  const Stack up_stack{up_a, up_b, up_a ? adapter : none, up_ranks, up_scales, kAdapter, kUpRanks};
  check_stack("linear_swiglu_stack", "gate_", gate_stack, x.dtype);
  check_stack("linear_swiglu_stack", "up_", up_stack, x.dtype);
  if (y.numel() == 0) return;
  TensorView gate = y, up = y;
  const auto project = [&](const TensorView& w, const Stack& stack, TensorView& out) {
    Product p;
    p.rows = x[0], p.columns = w[0], p.depth = x[1];
    p.a = factor(x), p.b = weight_factor(stream, x, w, Layout::forward);
    out.data = stream.scratch.take<char>(y.bytes());
    multiply_with_stack(stream, x, stack, p, out);
  };
  project(w_gate, gate_stack, gate);
  project(w_up, up_stack, up);
  apply_swiglu(stream, gate, up, y);
}

}  // namespace

void register_linear_swiglu_stack(KernelTable& table) {
  table.set("linear_swiglu_stack", linear_swiglu_stack);
}

}  // namespace steptrain::cuda
