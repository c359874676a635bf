// The bf16 product (cuda/gemm/product.h): chooses the kernel, and compiles those for every GPU
// (cuda/gemm/product_bf16.cuh).
#include <utility>

#include "cuda/convert.h"
#include "cuda/gemm/few_rows.cuh"
#include "cuda/gemm/product_bf16.cuh"

namespace steptrain::cuda {
namespace {

using portable::Few;
using portable::Large;
using portable::Small;

constexpr int kPadThreads = 256;

/// Rounds scaled rows to bf16, with zeros up to whole_chunks; a thread a chunk.
__global__ void __launch_bounds__(kPadThreads)
    pad_kernel(const float* from, int64_t rows, int64_t columns, float scale, bf16* to) {
  const int64_t at = (int64_t{blockIdx.x} * kPadThreads + threadIdx.x) * kEight;
  const int64_t padded = whole_chunks(columns), row = at / padded, column = at % padded;
  if (row >= rows) return;
  float v[kEight];
  load8(from + row * columns + column, in_group(column, columns), false, v);
#pragma unroll
  for (float& element : v) element *= scale;
  store8(to + at, kEight, true, v);
}

template <typename Tile, bool kAsync>
void launch(Stream& stream, Layout layout, const Product& p) {
  if (layout == Layout::forward) return portable::launch<Layout::forward, Tile, kAsync>(stream, p, Store{});
  if (layout == Layout::input) return portable::launch<Layout::input, Tile, kAsync>(stream, p, Store{});
  portable::launch<Layout::weight, Tile, kAsync>(stream, p, Store{});
}

}  // namespace

Factor as_bf16(Stream& stream, const Factor& f, float scale) {
  if (f.dtype == DType::bf16 || f.format != Format::none) return f;
  const auto view = [&](void* data, DType dtype) {
    TensorView t;
    t.data = data;
    t.shape = {f.rows, f.columns};
    t.rank = 2;
    t.dtype = dtype;
    return t;
  };
  const int64_t columns = whole_chunks(f.columns);
  bf16* copy = stream.scratch.take<bf16>(f.rows * columns);
  if (columns == f.columns && scale == 1) {
    convert(stream, view(const_cast<void*>(f.data), DType::f32), view(copy, DType::bf16));
  } else {
    const int64_t chunks = f.rows * columns / kEight;
    stream.launch(pad_kernel, (chunks + kPadThreads - 1) / kPadThreads, kPadThreads, 0,
                  static_cast<const float*>(f.data), f.rows, f.columns, scale, copy);
  }
  return {copy, DType::bf16, f.rows, columns};
}

Loading loading_of(const Stream& stream, const Product& p) {
  const bool plain = p.dropped == Dropped::nothing || p.dropped == Dropped::lora;
  if (!plain || !readable_once_bf16(p.a) || !readable_once_bf16(p.b)) return Loading::registers;
#ifdef STEPTRAIN_SM90
  if (stream.hardware.compute_capability == 90 && readable_once_bf16(p.lora_a, true) &&
      readable_once_bf16(p.lora_b, true))
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
  if (p.rank == 0) return;
  if (p.lora_a.dtype == DType::f32) p.lora_a = as_bf16(stream, p.lora_a, std::exchange(p.lora_scale, 1.0f));
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
