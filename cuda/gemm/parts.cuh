// What the GEMM kernels share: reading factors of any dtype, size and alignment; dropout; the order of tiles;
// and epilogues, which take the sums of a tile. A kernel is a mainloop (cuda/gemm/product_bf16.cuh,
// cuda/gemm/product_f32.cuh, cuda/gemm/sm90_tiles.cuh) with an epilogue, a type like Store below:
//   kColumns    columns of an item, the work that a block takes at a time: one tile of rows by several tiles
//               of columns, one after the other. 0: a single tile
//   kLora      whether products may have a LoRA pair
//   kTwin       where true (absent: false), half of each tile is of p, half of the epilogue's `twin`
//               (cuda/gemm/linear_swiglu.cuh)
//   Item<Sums>  is constructed from the epilogue and the product when a thread starts on an item.
//               add(sums, last) takes the thread's share of each tile's sums, in order; last: no tile
//               follows. apply(sums), of epilogues that write one matrix, turns the sums into elements of
//               that matrix, for a kernel that stores them itself
// Sums are kRows rows by kPairs pairs of neighbouring columns, the first of which is even: at(i, pair, 0 or
// 1) is in row(i) and in column(pair) or the next; pairs are kStride columns apart. Sums beyond the product
// are 0. kLanes neighbouring lanes share their rows; kParts such groups share a row of the tile, and part()
// is the thread's.
#pragma once

#include "core/philox.h"
#include "cuda/gemm/product.h"
#include "cuda/storage.cuh"

namespace steptrain::cuda {

constexpr bool a_k_major(Layout layout) {
  return layout != Layout::weight;
}
constexpr bool b_k_major(Layout layout) {
  return layout == Layout::forward;
}

/// v = f[row][column..column+7], zero outside f.
__device__ inline void fetch(const Factor& f, int64_t row, int64_t column, float (&v)[kEight]) {
  const int count = row < f.rows ? in_group(column, f.columns) : 0;
  const int64_t at = count > 0 ? row * f.columns + column : 0;
  if (f.dtype == DType::bf16) {
    const bf16* p = static_cast<const bf16*>(f.data) + at;
    load8(p, count, reinterpret_cast<uintptr_t>(p) % 16 == 0, v);
  } else {
    const float* p = static_cast<const float*>(f.data) + at;
    load8(p, count, reinterpret_cast<uintptr_t>(p) % 16 == 0, v);
  }
}

/// The dropout factors of elements (token, feature..feature+3); feature is a multiple of 4.
__device__ inline void dropout_factors(const Dropout& d, int64_t token, int64_t feature, float (&factor)[4]) {
  const Philox4 block =
      philox({{static_cast<uint32_t>(feature >> 2), static_cast<uint32_t>(d.positions[token]),
               static_cast<uint32_t>(d.row_ids[token]), 0}},
             d.key0, d.key1);
#pragma unroll
  for (int i = 0; i < 4; i++) factor[i] = uniform(block.v[i]) >= d.rate ? d.kept : 0.0f;
}

/// As fetch, for a factor with dropout: rows are tokens, columns features; column is a multiple of 8.
__device__ inline void fetch_dropped(const Factor& f, const Dropout& d, int64_t row, int64_t column,
                                     float (&v)[kEight]) {
  fetch(f, row, column, v);
  if (row >= f.rows) return;
#pragma unroll
  for (int half = 0; half < kEight; half += 4) {
    float factor[4];
    dropout_factors(d, row, column + half, factor);
#pragma unroll
    for (int i = 0; i < 4; i++) v[half + i] *= factor[i];
  }
}

/// The order of tiles: bands of kBand rows of tiles, column by column within a band, so that tiles that run
/// at the same time share factors in the L2 cache.
struct TilePlace {
  int64_t row, column;  // of the tile's first element
};
__device__ inline TilePlace tile_place(const Product& p, int64_t index, int tile_rows, int tile_columns) {
  constexpr int64_t kBand = 8;
  const int64_t down = (p.rows + tile_rows - 1) / tile_rows,
                across = (p.columns + tile_columns - 1) / tile_columns;
  const int64_t band = index / (kBand * across), within = index % (kBand * across);
  const int64_t height = down - band * kBand < kBand ? down - band * kBand : kBand;
  return {(band * kBand + within % height) * tile_rows, within / height * tile_columns};
}
__host__ __device__ inline int64_t tile_count(const Product& p, int tile_rows, int tile_columns) {
  return (p.rows + tile_rows - 1) / tile_rows * ((p.columns + tile_columns - 1) / tile_columns);
}

__device__ inline float element(const void* data, DType dtype, int64_t at) {
  return dtype == DType::bf16 ? to_float(static_cast<const bf16*>(data)[at])
                              : static_cast<const float*>(data)[at];
}

/// An output from its sum, without residual and what the output already holds.
__device__ inline float finished(const Product& p, int64_t column, float sum) {
  sum *= p.scale;
  return p.bias ? sum + element(p.bias, p.bias_dtype, column) : sum;
}
__device__ inline float finished(const Product& p, int64_t at, int64_t column, float sum) {
  sum = finished(p, column, sum);
  const void* const addend = p.accumulate ? p.out : p.residual;
  if (!addend) return sum;
  if (!p.accumulate && p.out_dtype == DType::bf16) sum = stored<bf16>(sum);
  return sum + element(addend, p.out_dtype, at);
}

/// p[0], p[1] = first, second in one access.
__device__ inline void store_pair(float* p, float first, float second) {
  *reinterpret_cast<float2*>(p) = make_float2(first, second);
}
__device__ inline void store_pair(bf16* p, float first, float second) {
  *reinterpret_cast<uint32_t*>(p) = round_to_bf16_pair(first, second);
}

/// Writes the outputs of two neighbouring columns, the first of which is even. paired: both are within p and
/// may be written in one access.
__device__ inline void finish(const Product& p, bool paired, int64_t row, int64_t column, float first,
                              float second) {
  if (row >= p.rows || column >= p.columns) return;
  const int64_t at = row * p.columns + column;
  const bool both = column + 1 < p.columns;
  first = finished(p, at, column, first);
  if (both) second = finished(p, at + 1, column + 1, second);
  if (p.out_dtype == DType::bf16) {
    bf16* out = static_cast<bf16*>(p.out) + at;
    if (paired) return store_pair(out, first, second);
    out[0] = from_float<bf16>(first);
    if (both) out[1] = from_float<bf16>(second);
  } else {
    float* out = static_cast<float*>(p.out) + at;
    if (paired) return store_pair(out, first, second);
    out[0] = first;
    if (both) out[1] = second;
  }
}

/// Whether every pair of neighbouring columns may be written in one access.
__device__ inline bool writes_pairs(const Product& p) {
  const uintptr_t pair = p.out_dtype == DType::bf16 ? 4 : 8;
  return p.columns % 2 == 0 && reinterpret_cast<uintptr_t>(p.out) % pair == 0;
}

/// A thread's share of a tile's sums in the layout of the tensor cores:
/// rows 8 apart, and pairs 8 columns apart.
template <int kTheRows, int kThePairs, int kTheParts>
struct TensorSums {
  static constexpr int kRows = kTheRows, kPairs = kThePairs, kStride = 8, kLanes = 4, kParts = kTheParts;
  float v[kRows * kPairs * 2];
  TilePlace tile;
  int first_row, first_column;  // within the tile
  __device__ float& at(int i, int pair, int e) { return v[(i / 2 * kPairs + pair) * 4 + i % 2 * 2 + e]; }
  /// The accumulator of one mma, for the i-th two rows.
  __device__ float (&block(int i, int pair))[4] {
    return *reinterpret_cast<float(*)[4]>(v + (i * kPairs + pair) * 4);
  }
  __device__ int64_t row(int i) const { return tile.row + (first_row + 8 * i); }
  __device__ int64_t column(int pair) const { return tile.column + (first_column + kStride * pair); }
  __device__ int part() const { return first_column / (kStride * kPairs); }
};

/// body(first, second, row, column) for all pairs.
template <typename Sums, typename F>
__device__ inline void each_pair(Sums& sums, F body) {
#pragma unroll
  for (int i = 0; i < Sums::kRows; i += 2)
#pragma unroll
    for (int pair = 0; pair < Sums::kPairs; pair++)
#pragma unroll
      for (int half = 0; half < 2; half++)
        body(sums.at(i + half, pair, 0), sums.at(i + half, pair, 1), sums.row(i + half), sums.column(pair));
}

/// Scales and masks the sums of the LoRA pair, which the frozen product then continues.
template <typename Sums>
__device__ inline void scale_lora(const Product& p, Sums& sums) {
  each_pair(sums, [&](float& first, float& second, int64_t row, int64_t column) {
    float factor[4] = {1, 1, 1, 1};
    if (p.dropped == Dropped::lora && row < p.rows) dropout_factors(p.dropout, row, column / 4 * 4, factor);
    first *= p.lora_scale * (column % 4 == 0 ? factor[0] : factor[2]);
    second *= p.lora_scale * (column % 4 == 0 ? factor[1] : factor[3]);
  });
}

/// The same where half of the tile is twin's; without a mask.
template <typename Sums>
__device__ inline void scale_lora(const Product& p, const Product& twin, Sums& sums) {
#pragma unroll
  for (int i = 0; i < Sums::kRows; i++)
#pragma unroll
    for (int pair = 0; pair < Sums::kPairs; pair++)
#pragma unroll
      for (int e = 0; e < 2; e++)
        sums.at(i, pair, e) *= pair < Sums::kPairs / 2 ? p.lora_scale : twin.lora_scale;
}

/// The epilogue of plain products: scale, bias, accumulation, and out.
struct Store {
  static constexpr int64_t kColumns = 0;
  static constexpr bool kLora = true;
  template <typename Sums>
  struct Item {
    const Product& p;
    bool paired;
    __device__ Item(const Store&, const Product& p) : p(p), paired(writes_pairs(p)) {}
    __device__ void add(Sums& sums, bool) {
      each_pair(sums, [&](float first, float second, int64_t row, int64_t column) {
        finish(p, paired, row, column, first, second);
      });
    }
  };
};

template <typename Epilogue>
constexpr bool kTwin = false;
template <typename Epilogue>
requires requires {
  Epilogue::kTwin;
}
constexpr bool kTwin<Epilogue> = Epilogue::kTwin;

/// Columns of the product in a tile of `columns`, and in an item of such tiles.
template <typename Epilogue>
constexpr int tile_columns(int columns) {
  return kTwin<Epilogue> ? columns / 2 : columns;
}
template <typename Epilogue>
constexpr int64_t item_columns(int columns) {
  return Epilogue::kColumns > columns ? Epilogue::kColumns : tile_columns<Epilogue>(columns);
}

/// The product of the other half, or p where there is none.
template <typename Epilogue>
__host__ __device__ const Product& twin_of(const Epilogue& epilogue, const Product& p) {
  if constexpr (kTwin<Epilogue>) {
    return epilogue.twin;
  } else {
    return p;
  }
}

}  // namespace steptrain::cuda
