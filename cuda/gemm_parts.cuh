// What the two GEMM kernels share: reading factors of any dtype, size and alignment, dropout, the raster of
// tiles, and writing the result.
#pragma once

#include "core/philox.h"
#include "cuda/gemm.h"
#include "cuda/storage.cuh"

namespace steptrain::cuda {

constexpr bool a_along_depth(Layout layout) {
  return layout != Layout::weight;
}
constexpr bool b_along_depth(Layout layout) {
  return layout == Layout::forward;
}

/// v = f[row][column..column+7], zero outside of f.
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

/// Factors of elements (token, feature..feature+3); feature is a multiple of 4.
__device__ inline void dropout_factors(const Dropout& d, int64_t token, int64_t feature, float (&factor)[4]) {
  const Philox4 block =
      philox({{static_cast<uint32_t>(feature >> 2), static_cast<uint32_t>(d.positions[token]),
               static_cast<uint32_t>(d.row_ids[token]), 0}},
             d.key0, d.key1);
#pragma unroll
  for (int i = 0; i < 4; i++) factor[i] = uniform(block.v[i]) >= d.rate ? d.kept : 0.0f;
}

/// As fetch, of a factor that dropout applies to: rows are tokens, columns features, column is a multiple
/// of 8.
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

/// Tiles in bands of kBand rows of tiles, column by column within a band, so that tiles that run at the same
/// time share factors in the L2 cache.
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

/// The value of one output, of its sum.
__device__ inline float finished(const Product& p, int64_t at, int64_t column, float sum) {
  sum *= p.scale;
  if (p.bias) sum += element(p.bias, p.bias_dtype, column);
  return p.accumulate ? sum + element(p.out, p.out_dtype, at) : sum;
}

/// Writes the outputs of neighbouring columns, of which the first is even. paired: both lie within p and may
/// be written at once.
__device__ inline void finish(const Product& p, bool paired, int64_t row, int64_t column, float first,
                              float second) {
  if (row >= p.rows || column >= p.columns) return;
  const int64_t at = row * p.columns + column;
  const bool both = column + 1 < p.columns;
  first = finished(p, at, column, first);
  if (both) second = finished(p, at + 1, column + 1, second);
  if (p.out_dtype == DType::bf16) {
    bf16* out = static_cast<bf16*>(p.out) + at;
    if (paired) {
      *reinterpret_cast<uint32_t*>(out) = round_to_bf16_pair(first, second);
      return;
    }
    out[0] = from_float<bf16>(first);
    if (both) out[1] = from_float<bf16>(second);
  } else {
    float* out = static_cast<float*>(p.out) + at;
    if (paired) {
      *reinterpret_cast<float2*>(out) = make_float2(first, second);
      return;
    }
    out[0] = first;
    if (both) out[1] = second;
  }
}
/// Whether every pair of neighbouring columns may be written at once.
__device__ inline bool writes_pairs(const Product& p) {
  const uintptr_t pair = p.out_dtype == DType::bf16 ? 4 : 8;
  return p.columns % 2 == 0 && reinterpret_cast<uintptr_t>(p.out) % pair == 0;
}

}  // namespace steptrain::cuda
