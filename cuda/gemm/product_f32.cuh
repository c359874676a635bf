// The mainloop of the f32 product (cuda/gemm/product.h) on the ordinary cores: a block of 128 threads
// computes a tile of 64 rows by 64 columns, each thread 8 × 4 of it in registers, 16 of the depth at a time
// through shared memory (two buffers of 8.5 KiB; one is filled from registers while the other is read). A
// step of k is 32 multiply-adds of a thread beside three 16-byte reads (12 floats): 64 clocks of a
// multiprocessor with 64 lanes beside 48 with 128 bytes of shared memory a clock, less what the threads of a
// warp read together. An element is summed over the depth in ascending order; the LoRA pair is summed apart
// in the same way. Its bits depend neither on its place in a tile nor on the size of the product.
#pragma once

#include "cuda/gemm/parts.cuh"

namespace steptrain::cuda {
namespace ordinary {

constexpr int kThreads = 128;
constexpr int kTile = 64;
constexpr int kDepth = 16;
constexpr int kStride = kTile + 4;  // keeps rows multiples of 16 bytes, and their banks apart
constexpr int kRows = 8, kColumns = 4;
constexpr int kRowThreads = kTile / kColumns;  // threads per row

/// Eight elements of a tile [kDepth][kTile] of the factor, for each thread.
template <bool kKMajor>
struct Slice {
  int outer, depth;  // of the first element
  float v[kEight];

  __device__ Slice() {
    const int thread = static_cast<int>(threadIdx.x);
    // Where shared memory is written one element at a time, neighbouring threads take neighbouring `outer`.
    outer = kKMajor ? thread % kTile : thread % (kTile / kEight) * kEight;
    depth = kKMajor ? thread / kTile * kEight : thread / (kTile / kEight);
  }
  __device__ void load(const Factor& f, const Dropout* dropout, int64_t outer0, int64_t depth0) {
    const int64_t row = kKMajor ? outer0 + outer : depth0 + depth;
    const int64_t column = kKMajor ? depth0 + depth : outer0 + outer;
    if (dropout) {
      fetch_dropped(f, *dropout, row, column, v);
    } else {
      fetch(f, row, column, v);
    }
  }
  __device__ void store(float (&tile)[kDepth][kStride]) const {
    if constexpr (kKMajor) {
#pragma unroll
      for (int i = 0; i < kEight; i++) tile[depth + i][outer] = v[i];
    } else {
      store8(&tile[depth][outer], kEight, true, v);
    }
  }
};

/// A thread's share of a tile's sums: neighbouring rows and columns.
struct Sums {
  static constexpr int kRows = ordinary::kRows, kPairs = kColumns / 2, kStride = 2, kLanes = kRowThreads,
                       kParts = 1;
  float v[kRows][kColumns];
  TilePlace tile;
  int first_row, first_column;  // within the tile
  __device__ float& at(int i, int pair, int e) { return v[i][2 * pair + e]; }
  __device__ int64_t row(int i) const { return tile.row + (first_row + i); }
  __device__ int64_t column(int pair) const { return tile.column + (first_column + kStride * pair); }
  __device__ int part() const { return 0; }
};

template <Layout kLayout>
class Mainloop {
 public:
  __device__ explicit Mainloop(const Product& p) : p_(p) {}

  __device__ static Sums zero(TilePlace place) {
    Sums sums{};
    sums.tile = place;
    sums.first_row = row();
    sums.first_column = column();
    return sums;
  }

  /// Adds a·bᵀ.
  __device__ void add(const Factor& a, const Factor& b, int64_t depth, const Dropout* a_dropout,
                      const Dropout* b_dropout, TilePlace place, Sums& sums) const {
    alignas(16) __shared__ float a_tile[2][kDepth][kStride];
    alignas(16) __shared__ float b_tile[2][kDepth][kStride];
    Slice<a_k_major(kLayout)> a_slice;
    Slice<b_k_major(kLayout)> b_slice;
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
        for (int i = 0; i < kRows; i++) x[i] = a_tile[buffer][d][row() + i];
#pragma unroll
        for (int j = 0; j < kColumns; j++) y[j] = b_tile[buffer][d][column() + j];
#pragma unroll
        for (int i = 0; i < kRows; i++)
#pragma unroll
          for (int j = 0; j < kColumns; j++) sums.v[i][j] = fmaf(x[i], y[j], sums.v[i][j]);
      }
      if (more) store(buffer ^ 1);
      __syncthreads();
    }
  }

  __device__ void add(TilePlace place, Sums& sums) const {
    add(p_.a, p_.b, p_.depth, p_.dropped == Dropped::a ? &p_.dropout : nullptr,
        p_.dropped == Dropped::b ? &p_.dropout : nullptr, place, sums);
  }

  /// The product of the LoRA pair, in sums of its own: the frozen product is then summed from zero and rounds
  /// as it would alone.
  __device__ Sums lora(TilePlace place) const {
    Sums sums = zero(place);
    if (p_.rank == 0) return sums;
    add(p_.lora_a, p_.lora_b, p_.rank, nullptr, nullptr, place, sums);
#pragma unroll
    for (int i = 0; i < kRows; i++) {
      float factor[kColumns] = {1, 1, 1, 1};
      if (p_.dropped == Dropped::lora && sums.row(i) < p_.rows)
        dropout_factors(p_.dropout, sums.row(i), sums.column(0), factor);
#pragma unroll
      for (int j = 0; j < kColumns; j++) sums.v[i][j] *= p_.lora_scale * factor[j];
    }
    return sums;
  }

 private:
  __device__ static int row() {
    return static_cast<int>(threadIdx.x) / kRowThreads * kRows;
  }
  __device__ static int column() {
    return static_cast<int>(threadIdx.x) % kRowThreads * kColumns;
  }

  const Product& p_;
};

template <Layout kLayout, typename Epilogue>
__global__ void __launch_bounds__(kThreads)
    gemm_f32_kernel(const __grid_constant__ Product p, const __grid_constant__ Epilogue epilogue) {
  constexpr int64_t kItem = item_columns<Epilogue>(kTile);
  const Mainloop<kLayout> loop(p);
  typename Epilogue::template Item<Sums> item(epilogue, p);
  TilePlace place = tile_place(p, blockIdx.x, kTile, kItem);
  const int64_t end = place.column + kItem < p.columns ? place.column + kItem : p.columns;
  for (bool more = true; more;) {
    Sums sums;
    if constexpr (Epilogue::kLora) {
      const Sums lora = loop.lora(place);
      sums = loop.zero(place);
      loop.add(place, sums);
#pragma unroll
      for (int i = 0; i < kRows; i++)
#pragma unroll
        for (int j = 0; j < kColumns; j++) sums.v[i][j] += lora.v[i][j];
    } else {
      sums = loop.zero(place);
      loop.add(place, sums);
    }
    place.column += kTile;
    more = kItem > kTile && place.column < end;
    item.add(sums, !more);
  }
}

template <Layout kLayout, typename Epilogue>
void launch(Stream& stream, const Product& p, const Epilogue& epilogue) {
  stream.launch(gemm_f32_kernel<kLayout, Epilogue>, tile_count(p, kTile, item_columns<Epilogue>(kTile)),
                kThreads, 0, p, epilogue);
}

}  // namespace ordinary
}  // namespace steptrain::cuda
