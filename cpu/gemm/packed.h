// The layout of a frozen [N, K] weight: panels of kPanel outputs, vectorised over N. A panel is a sequence of
// groups of kGroup<T> neighbouring k (pairs of bf16, for vdpbf16ps); a group holds, output by output, its k:
//   element (n, k) = panel[n / kPanel][k / kGroup][n % kPanel][k % kGroup]
// Both extents are padded with zeros.
#pragma once

#include <cstdint>

#include "cpu/simd.h"

namespace steptrain::cpu::STEPTRAIN_ISA {

constexpr int64_t kPanel = 2 * kLanes;

template <typename T>
constexpr int64_t kGroup = sizeof(T) == 2 ? 2 : 1;

template <typename T>
constexpr int64_t packed_k(int64_t k) {
  return (k + kGroup<T> - 1) / kGroup<T> * kGroup<T>;
}

/// Panels of n outputs.
constexpr int64_t panels(int64_t n) {
  return (n + kPanel - 1) / kPanel;
}

/// Elements from one panel to the next.
template <typename T>
constexpr int64_t panel_stride(int64_t k) {
  return packed_k<T>(k) * kPanel;
}

template <typename T>
constexpr int64_t packed_index(int64_t n, int64_t k, int64_t features) {
  return n / kPanel * panel_stride<T>(features) + k / kGroup<T> * kPanel * kGroup<T> +
         n % kPanel * kGroup<T> + k % kGroup<T>;
}

}  // namespace steptrain::cpu::STEPTRAIN_ISA
