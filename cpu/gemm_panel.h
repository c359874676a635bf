// Filling panels (cpu/packed.h) from what a GEMM's right side may be: rows of outputs as Hugging Face stores
// a weight, rows along the reduction (activations, and weights in dX), or panels of the other direction or
// dtype.
#pragma once

#include <algorithm>
#include <cstdint>

#include "cpu/packed.h"

namespace steptrain::cpu::STEPTRAIN_ISA {

/// panel(n, k) = w[n·stride + k] for n < columns, k < depth; zero elsewhere.
template <typename T, typename S>
void pack_rows(const S* w, int64_t stride, int64_t columns, int64_t depth, T* panel) {
  constexpr int64_t group = kGroup<T>;
  for (int64_t k = 0; k < depth; k += group) {
    const int64_t ks = std::min(group, depth - k);
    for (int64_t n = 0; n < kPanel; n++) {
      for (int64_t j = 0; j < group; j++) {
        const bool inside = n < columns && j < ks;
        *panel++ = from_float<T>(inside ? to_float(w[n * stride + k + j]) : 0.0f);
      }
    }
  }
}

/// w[n·stride + k] = panel(n, k) for n < columns, k < depth.
template <typename T, typename S>
void unpack_rows(const T* panel, int64_t stride, int64_t columns, int64_t depth, S* w) {
  for (int64_t n = 0; n < columns; n++) {
    for (int64_t k = 0; k < depth; k++) {
      w[n * stride + k] = from_float<S>(to_float(panel[packed_index<T>(n, k, depth)]));
    }
  }
}

}  // namespace steptrain::cpu::STEPTRAIN_ISA
