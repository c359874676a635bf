// One row of a [N, K] weight as floats, whatever its storage and layout.
#pragma once

#include <algorithm>

#include "cpu/gemm/packed.h"

namespace steptrain::cpu::STEPTRAIN_ISA {

/// `to` holds k elements.
template <typename T>
void read_row(const TensorView& w, int64_t n, T* to) {
  const int64_t k = w[1];
  by_storage(w.dtype, [&](auto t) {
    using W = decltype(t);
    const W* data = w.as<W>();
    if (!w.packed) {
      const W* row = data + n * k;
      int64_t i = 0;
      for (; i + kLanes <= k; i += kLanes) store(to + i, load(row + i));
      if (i < k) store(to + i, load(row + i, static_cast<int>(k - i)), static_cast<int>(k - i));
      return;
    }
    constexpr int64_t group = kGroup<W>;
    const W* from = data + packed_index<W>(n, 0, k);
    for (int64_t i = 0; i < k; i += group, from += kPanel * group) {
      for (int64_t j = 0; j < std::min(group, k - i); j++) to[i + j] = from_float<T>(to_float(from[j]));
    }
  });
}

}  // namespace steptrain::cpu::STEPTRAIN_ISA
