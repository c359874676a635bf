// One row of a [N, K] weight as floats, whatever its storage and layout. Of a quantised one the view says, as its dtype,
// what its values are rounded to (valued).
#pragma once

#include <algorithm>

#include "cpu/gemm/quantized.h"

namespace steptrain::cpu::STEPTRAIN_ISA {

/// A quantised weight is decoded by panels, of whose outputs this takes one.
template <typename T>
void read_quantized_row(const TensorView& w, int64_t n, T* to) {
  by_storage(w.dtype, [&](auto t) {
    using V = decltype(t);
    by_format(w, [&](const auto& quantized) {
      constexpr int64_t run = 32;
      alignas(64) V values[run * kPanel];
      for (int64_t first = 0; first < w[1]; first += run) {
        const int64_t count = std::min(run, w[1] - first);
        quantized.decode(n / kPanel, first, first + count, values);
        for (int64_t i = 0; i < count; i++)
          to[first + i] = from_float<T>(to_float(values[packed_index<V>(n % kPanel, i, count)]));
      }
    });
  });
}

/// `to` holds k elements.
template <typename T>
void read_row(const TensorView& w, int64_t n, T* to) {
  const int64_t k = w[1];
  if (w.format != Format::none) return read_quantized_row(w, n, to);
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
