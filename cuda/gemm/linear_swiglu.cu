// linear_swiglu: y = silu(gate)·up, where gate and up are linear's outputs of x with two weights. bf16
// factors that cp.async or TMA can read take one product of two halves (cuda/gemm/linear_swiglu.cuh); all
// others take linear's kernels and the elementwise one. The bits are linear's wherever linear loads both
// weights in the same way. One launch; with LoRA one more for both pairs, or two where they have masks. A norm
// in front is in the product's launch where few::can_norm says so, else it takes one.
#include <algorithm>
#include <utility>

#include "core/error.h"
#include "cuda/gemm/few_rows_launch.cuh"
#include "cuda/gemm/linear_swiglu.cuh"
#include "cuda/gemm/lora.h"
#include "cuda/gemm/product_bf16.cuh"
#include "cuda/gemm/quantized.h"
#include "cuda/mlp.h"
#include "cuda/norm.h"
#include "cuda/runtime/families.h"

namespace steptrain::cuda {
namespace {

using portable::Large;
using portable::Small;

/// The fastest loading that both products allow.
Loading loading_of(const Stream& stream, const Product& p, const Product& twin) {
  return std::min(cuda::loading_of(stream, p), cuda::loading_of(stream, twin));
}

/// `norm`: of the rows, by the kernel that multiplies them.
void multiply_swiglu(Stream& stream, Loading loading, Product p, StoreSwiglu epilogue,
                     const few::Norm* norm) {
  round_factors(stream, loading, p);
  round_factors(stream, loading, epilogue.twin);
  if (norm) return few::launch(stream, p, epilogue, *norm);
  if (p.rows <= few::kMaxRows) return few::launch(stream, p, epilogue);
#ifdef STEPTRAIN_SM90
  if (loading == Loading::tma) return multiply_swiglu_sm90(stream, p, epilogue);
#endif
  if (tile_count(p, Large::kRows, Large::kColumns / 2) >= stream.hardware.multiprocessors)
    return portable::launch<Layout::forward, Large, true>(stream, p, epilogue);
  portable::launch<Layout::forward, Small, true>(stream, p, epilogue);
}

void linear_swiglu(Stream& stream, const Args& args) {
  const auto [rows, w_gate, w_up, gate_a, gate_b, up_a, up_b, row_ids, positions, norm, y, gate_out, up_out,
              gate_u, up_u] = args.tensors<15>();
  const bool inside = norm && !gate_a && !up_a && few::can_norm(rows, {w_gate, w_up});
  const TensorView x = norm && !inside ? normed(stream, rows, norm, args.f(7)) : rows;
  const char* const op = "linear_swiglu";
  const LowRank gate_pair{
      x,      gate_a,
      gate_b, gate_u,
      1,      dropout_of(op, {args.d(2), args.i(3), args.i(4)}, x[0], gate_a, gate_b, row_ids, positions)};
  const LowRank up_pair{
      x,    up_a, up_b,
      up_u, 1,    dropout_of(op, {args.d(2), args.i(5), args.i(6)}, x[0], up_a, up_b, row_ids, positions)};
  if ((gate_u && !gate_a) || (up_u && !up_a))
    throw Error("E_SHAPE", "linear_swiglu: gate_u and up_u are the LoRA pairs'; pass a pair or no u");
  if (y.numel() == 0) return;

  Product p;
  p.rows = x[0], p.columns = w_gate[0], p.depth = x[1];
  p.a = factor(x), p.b = weight_factor(stream, x, w_gate, Layout::forward);
  p.out = gate_out.data, p.out_dtype = y.dtype;
  p.lora_scale = args.f(0);
  StoreSwiglu epilogue{p, y.as<bf16>()};
  Product& twin = epilogue.twin;
  twin.b = weight_factor(stream, x, w_up, Layout::forward);
  twin.out = up_out.data;
  twin.lora_scale = args.f(1);
  fold_in(stream, gate_pair, p, up_pair, twin);
  if (x.dtype == DType::bf16) {
    const Loading loading = loading_of(stream, p, twin);
    const few::Norm own = inside ? few::norm_of(norm, args.f(7)) : few::Norm{};
    if (loading != Loading::registers)
      return multiply_swiglu(stream, loading, p, epilogue, inside ? &own : nullptr);
  }
  TensorView gate = y, up = y;
  for (const auto& [of, view] : {std::pair{&p, &gate}, std::pair{&twin, &up}}) {
    if (!of->out) of->out = stream.scratch.take<char>(y.bytes());
    view->data = of->out;
    multiply(stream, x.dtype, Layout::forward, *of);
  }
  apply_swiglu(stream, gate, up, y);
}

}  // namespace

void register_linear_swiglu(KernelTable& table) {
  table.set("linear_swiglu", linear_swiglu);
}

}  // namespace steptrain::cuda
