// linear: y[T,N] = x[T,K]·W[N,K]ᵀ + bias + scale·u·Bᵀ (+ residual) with u[T,r] = drop(x)·Aᵀ; y and u are
// overwritten. One region computes u first, or the ranks of each row's own adapter of a stack; then every tile of
// y sums over K and continues over r. The product is in the dtype of x (weights and adapters of another dtype are
// cast as they are packed) with f32 accumulators. Every element has one order of sums, so a row's bits depend on
// that row alone.
#include "cpu/gemm/products.h"
#include "cpu/runtime/families.h"

namespace steptrain::cpu::STEPTRAIN_ISA {
namespace {

template <typename T>
void forward(Stream& stream, const Args& args) {
  const auto [x, w, bias, lora_a, lora_b, row_ids, positions, stack_a, stack_b, adapter, ranks, scales,
              residual, y, u] = args.tensors<15>();
  const Dropout dropout =
      dropout_of("linear", x[0], lora_a, lora_b, row_ids, positions, args.d(1), args.i(2), args.i(3));
  if (u && !lora_a) throw Error("E_SHAPE", "linear: u is the LoRA pair's; pass lora_a and lora_b or no u");
  const Stack stack{adapter, ranks, scales};
  check_stack("linear", "", stack, x.dtype, stack_a, stack_b);
  if (stack && lora_a) throw Error("E_SHAPE", "linear: pass one LoRA pair or a stack of them, not both");
  if (stack && residual) throw Error("E_SHAPE", "linear: pass a stack or a residual, not both");
  Projection<T> weight(stream, w, lora_a, lora_b, u, x[0], args.f(0), dropout);
  if (stack) weight.add_stack(stream, stack, stack_a, stack_b, x[0]);
  multiply_outputs<T, 1>(stream, x, {{{weight, bias, y, residual}}});
}

void linear(Stream& stream, const Args& args) {
  args.tensor[0].dtype == DType::bf16 ? forward<bf16>(stream, args) : forward<float>(stream, args);
}

}  // namespace

void register_linear(KernelTable& table) {
  table.set("linear", linear);
}

}  // namespace steptrain::cpu::STEPTRAIN_ISA
