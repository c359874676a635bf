// linear: u = drop(x)·Aᵀ, y = x·Wᵀ + bias + scale·u·Bᵀ (+ residual), with T tokens, K input and N output features and LoRA
// rank r; y and u are overwritten. The LoRA pair is more depth for the same product. One launch, one more for u,
// and one for each f32 weight of an aligned bf16 product. A stack of pairs takes two, and in bf16 one more.
#include "core/error.h"
#include "cuda/gemm/lora.h"
#include "cuda/gemm/quantized.h"
#include "cuda/gemm/stack.h"
#include "cuda/runtime/families.h"

namespace steptrain::cuda {
namespace {

void linear(Stream& stream, const Args& args) {
  const auto [x, w, bias, lora_a, lora_b, row_ids, positions, stack_a, stack_b, adapter, ranks, scales,
              residual, y, u_out] = args.tensors<15>();
  const Dropout dropout =
      dropout_of("linear", {args.d(1), args.i(2), args.i(3)}, x[0], lora_a, lora_b, row_ids, positions);
  const Stack stack{stack_a, stack_b, adapter, ranks, scales, 9, 10};
  check_stack("linear", "", stack, x.dtype);
  if (stack && lora_a) throw Error("E_SHAPE", "linear: pass one LoRA pair or a stack of them, not both");
  if (stack && residual) throw Error("E_SHAPE", "linear: pass a stack or a residual, not both");
  if (u_out && !lora_a)
    throw Error("E_SHAPE", "linear: u is the LoRA pair's; pass lora_a and lora_b or no u");
  Product p;
  p.rows = x[0], p.columns = w[0], p.depth = x[1];
  p.a = factor(x), p.b = weight_factor(stream, x, w, Layout::forward);
  p.bias = bias.data, p.bias_dtype = bias.dtype;
  p.residual = residual.data;
  if (lora_a) {
    p.lora_scale = args.f(0);
    fold_in(stream, Layout::forward, {x, lora_a, lora_b, u_out, 1, dropout}, p);
  }
  multiply_with_stack(stream, x, stack, p, y);
}

}  // namespace

void register_linear(KernelTable& table) {
  table.set("linear", linear);
}

}  // namespace steptrain::cuda
