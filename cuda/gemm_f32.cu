// The f32 product (cuda/gemm.h) on the ordinary cores: a block of 128 threads makes a tile of 64 rows by 64
// columns, each thread 8 × 4 of it in registers, 16 of the depth at a time through shared memory (two
// buffers, filled from registers while the other is read). An element is summed over the depth, ascending, by
// fused multiply-adds, and the extra depth likewise, apart: its bits depend neither on its place in a tile
// nor on the size of the product.
#include "cuda/gemm_parts.cuh"

namespace steptrain::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kTile = 64;
constexpr int kDepth = 16;
constexpr int kStride = kTile + 4;  // keeps rows multiples of 16 bytes, and their banks apart
constexpr int kRows = 8, kColumns = 4;
constexpr int kAcross = kTile / kColumns;  // threads along the columns

/// Each thread's eight elements of a tile [kDepth][kTile] of the factor.
template <bool kAlongDepth>
struct Slice {
  int outer, depth;  // of the first element
  float v[kEight];

  __device__ Slice() {
    const int thread = static_cast<int>(threadIdx.x);
    // Neighbouring threads take neighbouring `outer` where shared memory is written one element at a time.
    outer = kAlongDepth ? thread % kTile : thread % (kTile / kEight) * kEight;
    depth = kAlongDepth ? thread / kTile * kEight : thread / (kTile / kEight);
  }
  __device__ void load(const Factor& f, const Dropout* dropout, int64_t outer0, int64_t depth0) {
    const int64_t row = kAlongDepth ? outer0 + outer : depth0 + depth;
    const int64_t column = kAlongDepth ? depth0 + depth : outer0 + outer;
    if (dropout) {
      fetch_dropped(f, *dropout, row, column, v);
    } else {
      fetch(f, row, column, v);
    }
  }
  __device__ void store(float (&tile)[kDepth][kStride]) const {
    if constexpr (kAlongDepth) {
#pragma unroll
      for (int i = 0; i < kEight; i++) tile[depth + i][outer] = v[i];
    } else {
      store8(&tile[depth][outer], kEight, true, v);
    }
  }
};

template <Layout kLayout>
__global__ void __launch_bounds__(kThreads) gemm_f32_kernel(const __grid_constant__ Product p) {
  alignas(16) __shared__ float a_tile[2][kDepth][kStride];
  alignas(16) __shared__ float b_tile[2][kDepth][kStride];
  const TilePlace place = tile_place(p, blockIdx.x, kTile, kTile);
  const int row = static_cast<int>(threadIdx.x) / kAcross * kRows;
  const int column = static_cast<int>(threadIdx.x) % kAcross * kColumns;
  Slice<a_along_depth(kLayout)> a_slice;
  Slice<b_along_depth(kLayout)> b_slice;
  float sums[kRows][kColumns] = {};

  const auto accumulate = [&](const Factor& a, const Factor& b, int64_t depth, const Dropout* a_dropout,
                              const Dropout* b_dropout) {
    const auto load = [&](int64_t k) {
      a_slice.load(a, a_dropout, place.row, k);
      b_slice.load(b, b_dropout, place.column, k);
    };
    const auto store = [&](int buffer) {
      a_slice.store(a_tile[buffer]);
      b_slice.store(b_tile[buffer]);
    };
    int buffer = 0;
    if (depth > 0) {
      load(0);
      store(0);
    }
    __syncthreads();
    for (int64_t k = 0; k < depth; k += kDepth, buffer ^= 1) {
      const bool more = k + kDepth < depth;
      if (more) load(k + kDepth);
#pragma unroll
      for (int d = 0; d < kDepth; d++) {
        float x[kRows], y[kColumns];
#pragma unroll
        for (int i = 0; i < kRows; i++) x[i] = a_tile[buffer][d][row + i];
#pragma unroll
        for (int j = 0; j < kColumns; j++) y[j] = b_tile[buffer][d][column + j];
#pragma unroll
        for (int i = 0; i < kRows; i++)
#pragma unroll
          for (int j = 0; j < kColumns; j++) sums[i][j] = fmaf(x[i], y[j], sums[i][j]);
      }
      if (more) store(buffer ^ 1);
      __syncthreads();
    }
  };

  // Held apart, so that the frozen product is summed from zero and rounds as it would alone.
  float extra[kRows][kColumns] = {};
  if (p.extra_depth > 0) {
    accumulate(p.extra_a, p.extra_b, p.extra_depth, nullptr, nullptr);
#pragma unroll
    for (int i = 0; i < kRows; i++) {
      float factor[kColumns] = {1, 1, 1, 1};
      const int64_t m = place.row + row + i, n = place.column + column;
      if (p.dropped == Dropped::extra && m < p.rows) dropout_factors(p.dropout, m, n, factor);
#pragma unroll
      for (int j = 0; j < kColumns; j++) {
        extra[i][j] = sums[i][j] * p.extra_scale * factor[j];
        sums[i][j] = 0;
      }
    }
  }
  accumulate(p.a, p.b, p.depth, p.dropped == Dropped::a ? &p.dropout : nullptr,
             p.dropped == Dropped::b ? &p.dropout : nullptr);
  const bool paired = writes_pairs(p);
#pragma unroll
  for (int i = 0; i < kRows; i++)
#pragma unroll
    for (int j = 0; j < kColumns; j += 2)
      finish(p, paired, place.row + row + i, place.column + column + j, sums[i][j] + extra[i][j],
             sums[i][j + 1] + extra[i][j + 1]);
}

}  // namespace

void multiply_f32(Stream& stream, Layout layout, const Product& product) {
  const auto kernel = layout == Layout::forward ? gemm_f32_kernel<Layout::forward>
                      : layout == Layout::input ? gemm_f32_kernel<Layout::input>
                                                : gemm_f32_kernel<Layout::weight>;
  stream.launch(kernel, tile_count(product, kTile, kTile), kThreads, 0, product);
}

}  // namespace steptrain::cuda
