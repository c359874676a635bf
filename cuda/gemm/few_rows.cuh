// x·Wᵀ for up to kMaxRows rows of x, as decoding has it, with operands swapped: rows of W are mma's rows, and
// tokens its columns, of which eight are enough. W is read once by many blocks at a time; the sums that they
// share are what this file fixes:
//   The depth is cut into kSlices slices of whole steps of 32, by its size alone. A slice is summed in f32
//   from 0, ascending; an element is its LoRA pair, scaled, plus the slices in order.
// Which warp or block sums which slice is free, so an element has the same bits from every kernel and in
// every batch of up to kMaxRows rows.
//   cuda/gemm/few_rows_stream.cuh   up to 16 rows: every warp streams its slice of W through registers
//   cuda/gemm/few_rows_tiles.cuh    up to kMaxRows: tiles in shared memory
// A lane reads 16 bytes of a row at a time, eight of the depth, which are its share of two mma: the depth of
// an mma is permuted, in the same way for both factors, which the sum does not notice.
#pragma once

#include <type_traits>

#include "cuda/fragments.h"
#include "cuda/gemm/parts.cuh"

namespace steptrain::cuda {
namespace few {

constexpr int64_t kMaxRows = 256;
constexpr int kSlices = 8;
constexpr int kStepDepth = 32;  // of two mma: four lanes, eight elements each
constexpr int kGroup = 8;       // tokens of an mma

__host__ __device__ inline int steps_of(int64_t depth) {
  return static_cast<int>((depth + kStepDepth - 1) / kStepDepth);
}
/// The first step of a slice; that of slice kSlices is the number of steps.
__device__ inline int first_step(int steps, int slice) {
  return steps * slice / kSlices;
}

/// The epilogue of several products of the same rows that share a launch, one after the other; their columns are
/// counted through. The product beside it in the launch is the first of them.
struct StoreEach : Store {
  static constexpr int kCount = 3;
  Product of[kCount];
};
template <typename Epilogue>
constexpr bool kSeveral = std::is_same_v<Epilogue, StoreEach>;

/// Tiles of `width` columns in all products of a launch.
template <typename Epilogue>
int64_t column_tiles(const Product& p, const Epilogue& epilogue, int width) {
  const auto tiles = [&](const Product& of) { return (of.columns + width - 1) / width; };
  if constexpr (kSeveral<Epilogue>) {
    int64_t sum = 0;
    for (const Product& of : epilogue.of) sum += tiles(of);
    return sum;
  } else {
    return tiles(p);
  }
}
/// The product that such a tile belongs to; `tile` is its number within that product afterwards.
template <typename Epilogue>
__device__ const Product& product_of(const Product& p, const Epilogue& epilogue, int width, int& tile) {
  if constexpr (kSeveral<Epilogue>) {
    int i = 0;
    for (; i < StoreEach::kCount - 1; i++) {
      const int tiles = static_cast<int>((epilogue.of[i].columns + width - 1) / width);
      if (tile < tiles) break;
      tile -= tiles;
    }
    return epilogue.of[i];
  } else {
    return p;
  }
}

/// What a lane reads of one row of a factor: its eight elements of each step.
struct RowReader {
  const bf16* data;
  int64_t left;  // elements of the row from the lane's first one on; none where there is no row

  __device__ RowReader(const Factor& f, int64_t row, int lane) {
    const int offset = lane % 4 * kEight;
    const bool inside = row < f.rows;
    data = static_cast<const bf16*>(f.data) + (inside ? row * f.columns + offset : 0);
    left = inside ? f.columns - offset : 0;
  }
  __device__ uint4 read(int step) const {
    const int64_t at = int64_t{step} * kStepDepth;
    return at < left ? *reinterpret_cast<const uint4*>(data + at) : make_uint4(0, 0, 0, 0);
  }
};

/// sums[16 rows of W, 8 tokens] += a step, from what the lane holds of its two rows of W (fragment_row) and of
/// its token (lane / 4).
__device__ inline void multiply_step(float (&sums)[4], const uint4& upper, const uint4& lower,
                                     const uint4& token) {
  const uint32_t first[4] = {upper.x, lower.x, upper.y, lower.y},
                 second[4] = {upper.z, lower.z, upper.w, lower.w};
  mma(sums, first, token.x, token.y);
  mma(sums, second, token.z, token.w);
}

/// Eight elements of any factor, rounded, zeros outside it.
__device__ inline uint4 fetch_rounded(const Factor& f, int64_t row, int64_t column) {
  float v[kEight];
  fetch(f, row, column, v);
  return make_uint4(round_to_bf16_pair(v[0], v[1]), round_to_bf16_pair(v[2], v[3]),
                    round_to_bf16_pair(v[4], v[5]), round_to_bf16_pair(v[6], v[7]));
}

/// sums[16 rows of W from `column`, 8 tokens from `row`] = the LoRA pair, scaled.
__device__ inline void lora_sums(const Product& p, int64_t column, int64_t row, int lane, float (&sums)[4]) {
#pragma unroll
  for (int i = 0; i < 4; i++) sums[i] = 0;
  for (int64_t k = lane % 4 * kEight; k - lane % 4 * kEight < p.rank; k += kStepDepth)
    multiply_step(sums, fetch_rounded(p.lora_b, column + lane / 4, k),
                  fetch_rounded(p.lora_b, column + lane / 4 + 8, k),
                  fetch_rounded(p.lora_a, row + lane / 4, k));
#pragma unroll
  for (int i = 0; i < 4; i++) sums[i] *= p.lora_scale;
}

/// What an epilogue (cuda/gemm/parts.cuh) is handed: two tokens by two neighbouring columns, and those of the
/// twin.
template <bool kTwin>
struct PairSums {
  static constexpr int kRows = 2, kPairs = kTwin ? 2 : 1;
  float v[kRows][kPairs][2];
  int64_t first_row, first_column;
  __device__ float& at(int i, int pair, int e) { return v[i][pair][e]; }
  __device__ int64_t row(int i) const { return first_row + i; }
  __device__ int64_t column(int) const { return first_column; }
};

/// Hands the epilogue the outputs of kTokens tokens from `row` and kColumns columns from `column`, by all
/// kThreads threads. sum(half, token, column) is the sum of p's (half 0) or twin's element.
template <int kTokens, int kColumns, int kThreads, typename Epilogue, typename Sum>
__device__ void store_outputs(const Product& p, const Epilogue& epilogue, int64_t row, int64_t column,
                              Sum sum) {
  using Sums = PairSums<kTwin<Epilogue>>;
  typename Epilogue::template Item<Sums> item(epilogue, p);
  for (int i = static_cast<int>(threadIdx.x); i < kTokens * kColumns / 4; i += kThreads) {
    const int token = i / (kColumns / 2) * 2, beside = i % (kColumns / 2) * 2;
    Sums sums;
    sums.first_row = row + token, sums.first_column = column + beside;
#pragma unroll
    for (int half = 0; half < Sums::kPairs; half++)
#pragma unroll
      for (int e = 0; e < 4; e++) sums.v[e / 2][half][e % 2] = sum(half, token + e / 2, beside + e % 2);
    item.add(sums, true);
  }
}

}  // namespace few

/// The product of up to few::kMaxRows rows in the forward layout, of bf16 factors that cp.async can read.
void multiply_few_rows(Stream& stream, const Product& product);

}  // namespace steptrain::cuda
