// lora_grads: da += vᵀ·drop(x), db += scale·dyᵀ·u. Aligned bf16 rows and a rank of up to kMaxNarrow: one launch
// for both (cuda/gemm/skinny.h); otherwise one each.
#include "cuda/gemm/lora.h"
#include "cuda/runtime/families.h"

namespace steptrain::cuda {
namespace {

void lora_grads(Stream& stream, const Args& args) {
  const auto [x, dy, u, v, da, db, row_ids, positions] = args.tensors<8>();
  const Dropout dropout =
      dropout_of("lora_grads", {args.d(1), args.i(2), args.i(3)}, x[0], u, v, row_ids, positions);
  if (takes_narrow_gradients(x, dy, u[1])) {
    NarrowGradient a;
    a.narrow = factor(v), a.wide = factor(x);
    a.dropped = dropout.rate > 0, a.dropout = dropout;
    a.out = da.as<float>(), a.narrow_stride = x[1], a.wide_stride = 1;
    NarrowGradient b;
    b.narrow = factor(u), b.wide = factor(dy);
    b.scale = args.f(0);
    b.out = db.as<float>(), b.narrow_stride = 1, b.wide_stride = u[1];
    return add_narrow_gradients(stream, a, b);
  }
  Product a;
  a.rows = v[1], a.columns = x[1], a.depth = x[0];
  a.a = factor(v), a.b = factor(x);
  drop(a, Dropped::b, dropout);
  a.out = da.data, a.accumulate = true;
  multiply(stream, x.dtype, Layout::weight, a);

  Product b;
  b.rows = dy[1], b.columns = u[1], b.depth = x[0];
  b.a = factor(dy), b.b = factor(u);
  b.scale = args.f(0);
  b.out = db.data, b.accumulate = true;
  multiply(stream, x.dtype, Layout::weight, b);
}

}  // namespace

void register_lora_grads(KernelTable& table) {
  table.set("lora_grads", lora_grads);
}

}  // namespace steptrain::cuda
