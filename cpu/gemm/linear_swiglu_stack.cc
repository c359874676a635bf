// linear_swiglu_stack: linear_swiglu with stacks of LoRA pairs, one pair for each row.
#include "cpu/gemm/swiglu.h"
#include "cpu/runtime/families.h"

namespace steptrain::cpu::STEPTRAIN_ISA {
namespace {

template <typename T>
void swiglu_of_stacks(Stream& stream, const Args& args) {
  const auto [x, w_gate, w_up, adapter, gate_a, gate_b, gate_ranks, gate_scales, up_a, up_b, up_ranks,
              up_scales, y] = args.tensors<13>();
  const Stack gate_stack{gate_a ? adapter : TensorView{}, gate_ranks, gate_scales};
  const Stack up_stack{up_a ? adapter : TensorView{}, up_ranks, up_scales};
  check_stack("linear_swiglu_stack", "gate_", gate_stack, x.dtype, gate_a, gate_b);
  check_stack("linear_swiglu_stack", "up_", up_stack, x.dtype, up_a, up_b);
  const TensorView none;
  const Dropout undropped;
  Projection<T> gates(stream, w_gate, none, none, none, x[0], 1, undropped);
  Projection<T> ups(stream, w_up, none, none, none, x[0], 1, undropped);
  if (gate_stack) gates.add_stack(stream, gate_stack, gate_a, gate_b, x[0]);
  if (up_stack) ups.add_stack(stream, up_stack, up_a, up_b, x[0]);
  multiply_swiglu(stream, x, gates, ups, y, {}, {});
}

void linear_swiglu_stack(Stream& stream, const Args& args) {
  args.tensor[0].dtype == DType::bf16 ? swiglu_of_stacks<bf16>(stream, args)
                                      : swiglu_of_stacks<float>(stream, args);
}

}  // namespace

void register_linear_swiglu_stack(KernelTable& table) {
  table.set("linear_swiglu_stack", linear_swiglu_stack);
}

}  // namespace steptrain::cpu::STEPTRAIN_ISA
