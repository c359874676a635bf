// linear_dx: v = scale·dy·B, dx = dy·W + mask·(v·A). Both are overwritten; with `accumulate`, dx is accumulated
// into. Launches as in cuda/gemm/linear.cc, and one for the gradients of a pair, da += vᵀ·drop(x), db += scale·dyᵀ·u; or
// db comes with v, while dy is read once.
#include "cuda/gemm/lora.h"
#include "cuda/gemm/quantized.h"
#include "cuda/runtime/families.h"

namespace steptrain::cuda {
namespace {

void linear_dx(Stream& stream, const Args& args) {
  auto [dy, w, lora_a, lora_b, row_ids, positions, x, u, da, db, dx, v] = args.tensors<12>();
  const Dropout dropout =
      dropout_of("linear_dx", {args.d(1), args.i(2), args.i(3)}, dy[0], lora_a, lora_b, row_ids, positions);
  const LoraGradients gradients{x, u, da, db};
  check_gradients(gradients, lora_a, v, stream.scratch);
  // A second pass over dy is dear where dy is the wider one.
  const bool once = x && stream.hardware.choice.takes(Successor::lora_gradients) && dy[1] >= x[1] &&
                    takes_narrow_once(dy, u[1]);
  Product p;
  p.rows = dy[0], p.columns = w[1], p.depth = dy[1];
  p.a = factor(dy), p.b = weight_factor(stream, dy, w, Layout::input);
  set_output(p, dx.data, dx.dtype, args.i(4) != 0);
  if (lora_a) {
    LowRank pair{dy, lora_b, lora_a, v, args.f(0), {}};
    if (once) pair.u = u.as<float>(), pair.db = db.as<float>();
    fold_in(stream, Layout::input, pair, p);
    drop(p, Dropped::lora, dropout);
  }
  multiply(stream, dy.dtype, Layout::input, p);
  if (x) add_lora_gradients(stream, gradients, once ? TensorView{} : dy, v, args.f(0), dropout);
}

}  // namespace

void register_linear_dx(KernelTable& table) {
  table.set("linear_dx", linear_dx);
}

}  // namespace steptrain::cuda
