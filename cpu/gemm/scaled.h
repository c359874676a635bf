// x·panelᵀ of bf16 rows and a quantised weight (cpu/gemm/quantized.h) whose scales multiply the sum over a block and not every
// element of it: codes of four bits become bf16 by one look-up for 32 of them, and nothing is rounded but NF4's levels. Least
// values meet the sum of x over their block. An element's order of sums is that of its blocks, and within one that of a tile:
// the bits of a row are the same by register, by part and by panel.
#pragma once

#include <algorithm>

#include "cpu/gemm/block.h"
#include "cpu/gemm/quantized.h"

namespace steptrain::cpu::STEPTRAIN_ISA {

/// Of blocks as short as those of q8_0 and q6_k the scales cost more than they save.
template <typename T, Format kFormat>
constexpr bool kScalesSums = false;
#if defined(__AVX512BF16__) && !defined(__AMX_BF16__)
template <Format kFormat>
constexpr bool kScalesSums<bf16, kFormat> = (kFormat != Format::q8_0) && (kFormat != Format::q6_k);
#endif

namespace scaled {

/// Adds blocks [first, last) of a panel, kBlocks at a time: a sum waits six clocks for itself, so that few rows of one block leave
/// the processor idle. All are whole where these are several. Returns the first block that is left.
template <int kBlocks, int kRows, typename T, Format kFormat>
inline __attribute__((always_inline)) int64_t add_blocks(const Quantized<kFormat>& w, const T* x,
                                                         int64_t stride, int64_t panel, int64_t k,
                                                         int64_t first, int64_t last, const float* sums,
                                                         vf (&totals)[kRows][2]) {
  const int64_t block = w.block(), blocks = (k + block - 1) / block;
  for (; first + kBlocks <= last; first += kBlocks) {
    vf own[kBlocks][kRows][2];
#pragma GCC unroll 2
    for (auto& of_block : own) {
#pragma GCC unroll 4
      for (auto& row : of_block) row[0] = row[1] = zero();
    }
    w.template each_code<kBlocks>(
        panel, first * block, std::min(k, (first + 1) * block),
        [&](int64_t at, int i, const auto(&halves)[2]) __attribute__((always_inline)) {
#pragma GCC unroll 4
          for (int r = 0; r < kRows; r++) {
            own[i][r][0] = halves[0].add(own[i][r][0], x + r * stride + at);
            own[i][r][1] = halves[1].add(own[i][r][1], x + r * stride + at);
          }
        });
#pragma GCC unroll 2
    for (int i = 0; i < kBlocks; i++) {
      alignas(64) float scales[2 * kPanel];
      const BlockScales by = w.block_scales(panel, first + i, scales, sums, blocks);
#pragma GCC unroll 4
      for (int r = 0; r < kRows; r++) {
#pragma GCC unroll 2
        for (int half = 0; half < 2; half++)
          totals[r][half] = by.add(totals[r][half], own[i][r][half], r, half);
      }
    }
  }
  return first;
}

/// The codes are looked up as they come from memory.
template <int kRows, typename T, Format kFormat>
void by_register(const Quantized<kFormat>& w, const T* x, int64_t stride, int64_t panel, int64_t k,
                 const float* sums, float* c) {
  vf totals[kRows][2];
  for (auto& row : totals) row[0] = row[1] = zero();
  const int64_t whole = k / w.block(), blocks = (k + w.block() - 1) / w.block();
  int64_t first = 0;
  // A row that is one block has no second one.
  if (block_of(kFormat, 0)) first = add_blocks<2>(w, x, stride, panel, k, 0, whole, sums, totals);
  add_blocks<1>(w, x, stride, panel, k, first, blocks, sums, totals);
  for (int r = 0; r < kRows; r++)
    for (int half = 0; half < 2; half++) store(c + r * kTileStride + half * kLanes, totals[r][half]);
}

/// Rows whose sums stay in registers beside those of a block.
constexpr int kKeptRows = 7;

/// One tile by a part of a panel, of whole blocks, whose scales lie one after another from `by` on. Continues the sums in c.
template <int kRows, typename T>
void by_part(const T* x, int64_t stride, const T* part, int64_t k, int64_t block, BlockScales by,
             bool continues, float* c) {
  constexpr bool kKept = kRows <= kKeptRows;
  const T* rows[(kRows + 2) / 3];
#pragma GCC unroll 5
  for (int i = 0; i < (kRows + 2) / 3; i++) rows[i] = x + 3 * i * stride;
  vf totals[kRows][2];
  const auto fetch = [&](int r, int half) { return load(c + r * kTileStride + half * kLanes); };
  const auto put = [&](int r, int half, vf sum) { store(c + r * kTileStride + half * kLanes, sum); };
#pragma GCC unroll 7
  for (int r = 0; kKept && r < kRows; r++)
    for (int half = 0; half < 2; half++) totals[r][half] = continues ? fetch(r, half) : zero();
  for (int64_t begin = 0; begin < k; begin += block, by = by.next(), continues = true) {
    const int64_t end = std::min(k, begin + block);
    vf own[kRows][2];
#pragma GCC unroll 14
    for (int r = 0; r < kRows; r++) own[r][0] = own[r][1] = zero();
#pragma GCC unroll 4
    for (int64_t i = begin; i < end; i += 2) {
      tile::add_step<kRows, 2, T>(own, rows, stride, i, part);
      part += kPanel * 2;
    }
#pragma GCC unroll 14
    for (int r = 0; r < kRows; r++) {
#pragma GCC unroll 2
      for (int half = 0; half < 2; half++) {
        if constexpr (kKept) {
          totals[r][half] = by.add(totals[r][half], own[r][half], r, half);
        } else {
          put(r, half, by.add(continues ? fetch(r, half) : zero(), own[r][half], r, half));
        }
      }
    }
  }
#pragma GCC unroll 7
  for (int r = 0; kKept && r < kRows; r++)
    for (int half = 0; half < 2; half++) put(r, half, totals[r][half]);
}

/// Features of a part: it stays in the L1 cache.
constexpr int64_t kDepth = 128;

template <typename T, Format kFormat>
void by_parts(const Quantized<kFormat>& w, int64_t rows, const T* x, int64_t stride, int64_t panel, int64_t k,
              const float* sums, float* c) {
  const int64_t block = w.block(), blocks = (k + block - 1) / block;
  alignas(64) T part[kDepth * kPanel];
  alignas(64) float scales[kDepth / kLanes * 2 * kPanel];
  for (int64_t first = 0; first < k; first += kDepth) {
    const int64_t last = std::min(first + kDepth, k);
    w.fill_codes(panel, first, last, part);
    BlockScales by{};
    for (int64_t b = (last + block - 1) / block; b-- > first / block;)
      by = w.block_scales(panel, b, scales + (b - first / block) * BlockScales::kStride, sums, blocks);
    // One tile where it holds all; of more, those whose sums stay in registers.
    const int64_t most = rows > tile_height<T>(rows, stride) ? kKeptRows : kTileRows<T>;
    const int64_t tiles = (rows + most - 1) / most, height = (rows + tiles - 1) / tiles;
    for (int64_t r = 0; r < rows; r += height) {
      const T* const from = x + r * stride + first;
      float* const to = c + r * kTileStride;
      BlockScales own = by;
      if (own.has_least) own.sums += r * blocks;
      switch (std::min(height, rows - r)) {
#define STEPTRAIN_TILE(n)                                                    \
  case n:                                                                    \
    by_part<n>(from, stride, part, last - first, block, own, first > 0, to); \
    break
        STEPTRAIN_TILE(1);
        STEPTRAIN_TILE(2);
        STEPTRAIN_TILE(3);
        STEPTRAIN_TILE(4);
        STEPTRAIN_TILE(5);
        STEPTRAIN_TILE(6);
        STEPTRAIN_TILE(7);
        STEPTRAIN_TILE(8);
        STEPTRAIN_TILE(9);
        STEPTRAIN_TILE(10);
        STEPTRAIN_TILE(11);
        STEPTRAIN_TILE(12);
        STEPTRAIN_TILE(13);
        STEPTRAIN_TILE(14);
#undef STEPTRAIN_TILE
      }
    }
  }
}

/// Likewise, of a format with one scale for a row.
template <typename T, Format kFormat>
void whole_rows(const Quantized<kFormat>& w, int64_t rows, const T* x, int64_t stride, int64_t panel,
                int64_t k, float* c) {
  alignas(64) T part[kDepth * kPanel];
  for (int64_t first = 0; first < k; first += kDepth) {
    const int64_t last = std::min(first + kDepth, k);
    w.fill_codes(panel, first, last, part);
    each_tile<T>(0, rows, stride, [&](int64_t r, int height) {
      gemm_tile<T>(height, x + r * stride + first, stride, part, last - first, c + r * kTileStride,
                   first > 0);
    });
  }
  alignas(64) float scales[2 * kPanel];
  const BlockScales by = w.block_scales(panel, 0, scales, nullptr, 0);
  for (int64_t i = 0; i < rows * kPanel; i += kLanes)
    store(c + i, by.add(zero(), load(c + i), 0, static_cast<int>(i / kLanes % 2)));
}

}  // namespace scaled

/// c[rows][kTileStride] = x[rows, k]·panelᵀ for up to kBlockRows<T> rows; row r of x begins at x + r·stride, its block sums at
/// sums + r·⌈k / block⌉.
template <typename T, Format kFormat>
void multiply_scaled(const Quantized<kFormat>& w, int64_t rows, const T* x, int64_t stride, int64_t panel,
                     int64_t k, const float* sums, float* c) {
  // Nothing to add; a row may be its own block, by which nothing could be divided.
  if (k == 0) return std::fill(c, c + rows * kTileStride, 0.0f);
  switch (rows) {
    case 1:
      return scaled::by_register<1>(w, x, stride, panel, k, sums, c);
    case 2:
      return scaled::by_register<2>(w, x, stride, panel, k, sums, c);
    case 3:
      return scaled::by_register<3>(w, x, stride, panel, k, sums, c);
    case 4:
      return scaled::by_register<4>(w, x, stride, panel, k, sums, c);
    default:
      if (block_of(kFormat, k) == k && k > scaled::kDepth)
        return scaled::whole_rows(w, rows, x, stride, panel, k, c);
      return scaled::by_parts(w, rows, x, stride, panel, k, sums, c);
  }
}

}  // namespace steptrain::cpu::STEPTRAIN_ISA
