// linear_dx: v = scale·dy·B, dx = dy·W + mask·(v·A). Both are overwritten; with `accumulate`, dx is accumulated
// into. Launches as in cuda/gemm/linear.cc.
#include "core/error.h"
#include "cuda/gemm/lora.h"
#include "cuda/gemm/quantized.h"
#include "cuda/runtime/families.h"

namespace steptrain::cuda {
namespace {

void linear_dx(Stream& stream, const Args& args) {
  const auto [dy, w, lora_a, lora_b, row_ids, positions, dx, v_out] = args.tensors<8>();
  const Dropout dropout =
      dropout_of("linear_dx", {args.d(1), args.i(2), args.i(3)}, dy[0], lora_a, lora_b, row_ids, positions);
  if (v_out && !lora_a)
    throw Error("E_SHAPE", "linear_dx: v is the LoRA pair's; pass lora_a and lora_b or no v");
  Product p;
  p.rows = dy[0], p.columns = w[1], p.depth = dy[1];
  p.a = factor(dy), p.b = weight_factor(stream, dy, w, Layout::input);
  set_output(p, dx.data, dx.dtype, args.i(4) != 0);
  if (lora_a) {
    fold_in(stream, Layout::input, {dy, lora_b, lora_a, v_out, args.f(0), {}}, p);
    drop(p, Dropped::lora, dropout);
  }
  multiply(stream, dy.dtype, Layout::input, p);
}

}  // namespace

void register_linear_dx(KernelTable& table) {
  table.set("linear_dx", linear_dx);
}

}  // namespace steptrain::cuda
