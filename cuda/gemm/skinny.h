// Products of a LoRA pair, one side of which is its rank: bf16 rows that cp.async can read on tensor cores, f32 factors
// rounded to bf16 as they are read, sums in f32. Other rows and ranks above kMaxNarrow take the ordinary product
// (cuda/gemm/product.h).
#pragma once

#include "cuda/gemm/product.h"

namespace steptrain::cuda {

constexpr int kMaxNarrow = 64;  // columns together

/// The right factor of a narrow product, [columns][depth] or [depth][columns].
struct NarrowFactor {
  Factor b;
  int64_t columns = 0;
  float* out = nullptr;  // [rows, columns], may be absent
  bf16* rounded =
      nullptr;  // [rows, whole_chunks(columns)], rounded_scale times the same in bf16, may be absent
  float rounded_scale = 1;
  /// A factor that the next product reads, rounded in the same launch to `count` elements, rows of
  /// whole_chunks(other_columns). May be absent.
  const float* other = nullptr;
  bf16* other_rounded = nullptr;
  int64_t other_columns = 0, count = 0;
};

/// out = scale · drop(x)·b for one factor, or for two of the same x and mask.
struct Narrow {
  Factor x;  // bf16 [rows][depth]
  NarrowFactor of[2];
  float scale = 1;
  bool dropped = false;
  Dropout dropout;
};

/// Whether multiply_narrow takes these rows and so many columns together.
bool takes_narrow(const TensorView& rows, int64_t columns);
/// One launch (cuda/gemm/skinny_slices.cu). Layout::forward or, for one factor, Layout::input. A row's bits depend on
/// that row alone: the order of sums follows from the depth.
void multiply_narrow(Stream& stream, Layout layout, const Narrow& narrow);

constexpr int kMaxNarrowOnce = 32;  // columns that multiply_narrow_once takes
/// Whether multiply_narrow_once takes these rows and that rank.
bool takes_narrow_once(const TensorView& rows, int64_t rank);
/// One factor of Layout::input as multiply_narrow multiplies it, v = scale · dy·B, and with it db[n][j] += scale · Σ_t dy[t][n] ·
/// u[t][j], j < rank, in one pass over dy, and a launch that adds what its blocks leave (cuda/gemm/skinny_once.cu).
/// The bits of a row of v depend on that row alone, those of db on the shape.
void multiply_narrow_once(Stream& stream, const Narrow& v, const float* u, float* db);

/// out[j][k] += scale · Σ_t narrow[t][j] · drop(wide)[t][k], j < rank. Strides are those of `out`.
struct NarrowGradient {
  Factor narrow;  // [tokens][rank]
  Factor wide;    // bf16 [tokens][columns]
  float scale = 1;
  bool dropped = false;
  Dropout dropout;
  float* out = nullptr;
  int64_t narrow_stride = 0, wide_stride = 0;

  // Set by add_narrow_gradients.
  int64_t tiles = 0, splits = 0, tokens = 0;  // of the columns, of the tokens, and how many a split has
  float* partial = nullptr;
  uint32_t* tickets = nullptr;
};

/// Whether add_narrow_gradients takes these wide factors, for pairs of that rank.
bool takes_narrow_gradients(const TensorView& first, const TensorView& second, int64_t rank);
/// Both, or the first where the second is empty, in one launch (cuda/gemm/skinny_tokens.cu). Shapes alone decide how tokens are split; the last block of a tile
/// adds the splits in order.
void add_narrow_gradients(Stream& stream, NarrowGradient first, NarrowGradient second);

}  // namespace steptrain::cuda
