// x·panelᵀ of few rows and a quantised weight (cpu/gemm/quantized.h), of which no whole panel lies in memory: it would go out to
// the L2 cache and come back, at more time than the codes take from memory. The bits are those of a panel that does.
#pragma once

#include <algorithm>

#include "cpu/gemm/quantized.h"
#include "cpu/gemm/tile.h"

namespace steptrain::cpu::STEPTRAIN_ISA {

/// Most rows that are multiplied by what is still in registers. bf16 without instructions of its own would be widened again.
template <typename T>
constexpr int kRegisterRows = sizeof(T) == 4 ? 4 : 0;
#if defined(__AVX512BF16__) && !defined(__AMX_BF16__)
template <>
constexpr int kRegisterRows<bf16> = 4;
#endif

namespace decoded {

template <int kRows, typename T, Format kFormat>
void run(const Quantized<kFormat>& w, const T* x, int64_t stride, int64_t panel, int64_t k, float* c) {
  vf sums[kRows][2];
  for (auto& row : sums) row[0] = row[1] = zero();
  w.template each_pair<T>(
      panel, 0, k, [&](int64_t at, const auto(&halves)[2]) __attribute__((always_inline)) {
#pragma GCC unroll 4
        for (int r = 0; r < kRows; r++) {
          sums[r][0] = halves[0].add(sums[r][0], x + r * stride + at);
          sums[r][1] = halves[1].add(sums[r][1], x + r * stride + at);
        }
      });
  for (int r = 0; r < kRows; r++)
    for (int v = 0; v < 2; v++) store(c + r * kTileStride + v * kLanes, sums[r][v]);
}

}  // namespace decoded

/// c[rows][kTileStride] = x[rows, k]·panelᵀ for 1 ≤ rows ≤ kTileRows<T>; row r of x begins at x + r·stride.
template <typename T, Format kFormat>
void multiply_decoded(const Quantized<kFormat>& w, int rows, const T* x, int64_t stride, int64_t panel,
                      int64_t k, float* c) {
  if constexpr (kRegisterRows < T >> 0) {
    switch (rows) {
      case 1:
        return decoded::run<1>(w, x, stride, panel, k, c);
      case 2:
        return decoded::run<2>(w, x, stride, panel, k, c);
      case 3:
        return decoded::run<3>(w, x, stride, panel, k, c);
      case 4:
        return decoded::run<4>(w, x, stride, panel, k, c);
    }
  }
  // No part of the depth would write the sums.
  if (k == 0) return zero_sums(rows, c);
  // Parts that stay in the L1 cache.
  constexpr int64_t depth = 64;
  static_assert(depth % kSteps<T> == 0);
  alignas(64) T part[depth * kPanel];
  for (int64_t first = 0; first < k; first += depth) {
    const int64_t last = std::min(k, first + depth);
    w.decode(panel, first, last, part);
    gemm_tile<T>(rows, x + first, stride, part, last - first, c, first > 0);
  }
}

}  // namespace steptrain::cpu::STEPTRAIN_ISA
