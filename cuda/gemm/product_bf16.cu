// The bf16 product (cuda/gemm/product.h): chooses the kernel, and compiles those for every GPU
// (cuda/gemm/product_bf16.cuh).
#include "cuda/convert.h"
#include "cuda/gemm/few_rows.cuh"
#include "cuda/gemm/product_bf16.cuh"

namespace steptrain::cuda {
namespace {

using portable::Few;
using portable::Large;
using portable::Small;

template <typename Tile, bool kAsync>
void launch(Stream& stream, Layout layout, const Product& p) {
  if (layout == Layout::forward) return portable::launch<Layout::forward, Tile, kAsync>(stream, p, Store{});
  if (layout == Layout::input) return portable::launch<Layout::input, Tile, kAsync>(stream, p, Store{});
  portable::launch<Layout::weight, Tile, kAsync>(stream, p, Store{});
}

}  // namespace

Factor as_bf16(Stream& stream, const Factor& f) {
  if (f.dtype == DType::bf16) return f;
  const auto view = [&](void* data, DType dtype) {
    TensorView t;
    t.data = data;
    t.shape = {f.rows, f.columns};
    t.rank = 2;
    t.dtype = dtype;
    return t;
  };
  bf16* copy = stream.scratch.take<bf16>(f.rows * f.columns);
  convert(stream, view(const_cast<void*>(f.data), DType::f32), view(copy, DType::bf16));
  return {copy, DType::bf16, f.rows, f.columns};
}

Loading loading_of(const Stream& stream, const Product& p) {
  const bool plain = p.dropped == Dropped::nothing || p.dropped == Dropped::lora;
  if (!plain || !readable_once_bf16(p.a) || !readable_once_bf16(p.b)) return Loading::registers;
#ifdef STEPTRAIN_SM90
  if (stream.hardware.compute_capability == 90 && readable_once_bf16(p.lora_a) &&
      readable_once_bf16(p.lora_b))
    return Loading::tma;
#else
  (void)stream;
#endif
  return Loading::cp_async;
}

void round_factors(Stream& stream, Loading loading, Product& p) {
  if (loading == Loading::registers) return;
  p.a = as_bf16(stream, p.a);
  p.b = as_bf16(stream, p.b);
  if (loading == Loading::cp_async) return;  // the LoRA pair goes through registers
  p.lora_a = as_bf16(stream, p.lora_a);
  p.lora_b = as_bf16(stream, p.lora_b);
}

void multiply_bf16(Stream& stream, Layout layout, Product p) {
  if (p.rows == 0 || p.columns == 0) return;
  const Loading loading = loading_of(stream, p);
  round_factors(stream, loading, p);
  if (loading == Loading::registers) return launch<Small, false>(stream, layout, p);
  if (layout == Layout::forward && p.rows <= few::kMaxRows) return multiply_few_rows(stream, p);
  if (layout == Layout::input && p.rows <= Few::kRows)
    return portable::launch<Layout::input, Few, true>(stream, p, Store{});
#ifdef STEPTRAIN_SM90
  if (loading == Loading::tma) return multiply_sm90(stream, layout, p);
#endif
  if (tile_count(p, Large::kRows, Large::kColumns) >= stream.hardware.multiprocessors) {
    launch<Large, true>(stream, layout, p);
  } else {
    launch<Small, true>(stream, layout, p);
  }
}

}  // namespace steptrain::cuda
