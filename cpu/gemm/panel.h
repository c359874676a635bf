// Packs panels (cpu/gemm/packed.h) from whatever the right side of a GEMM is: a row per output, as Hugging
// Face stores a weight; a row per step of the sum (activations, and weights in dx); or panels of the other
// orientation or dtype. A panel has `columns` outputs and `depth` steps of the sum;
// everything past them is zero.
#pragma once

#include <algorithm>
#include <cstdint>

#include "cpu/gemm/units.h"

namespace steptrain::cpu::STEPTRAIN_ISA {

/// panel(n, d) = w[n·stride + d].
template <typename T, typename S>
void pack_rows(const S* w, int64_t stride, int64_t columns, int64_t depth, T* panel) {
  constexpr int64_t step = kLanes * kGroup<T>;
  for (int64_t d = 0; d < depth; d += step) {
    const int64_t units = std::min<int64_t>(kLanes, (depth - d + kGroup<T> - 1) / kGroup<T>);
    for (int64_t first = 0; first < kPanel; first += kLanes) {
      vu block[kLanes];
      for (int64_t i = 0; i < kLanes; i++) {
        block[i] = first + i < columns ? row_units<T>(w + (first + i) * stride + d, depth - d) : vu{};
      }
      transpose(block);
      T* out = panel + (d / kGroup<T> * kPanel + first) * kGroup<T>;
      for (int64_t i = 0; i < units; i++) store_units(out + i * kPanel * kGroup<T>, block[i]);
    }
  }
}

/// panel(n, d) = w[d·stride + n].
template <typename T, typename S>
void pack_columns(const S* w, int64_t stride, int64_t columns, int64_t depth, T* panel) {
  for (int64_t d = 0; d < depth; d += kGroup<T>) {
    for (int64_t first = 0; first < kPanel; first += kLanes) {
      const vu units = column_units<T>(w + d * stride + first, stride, columns - first, d + 1 < depth);
      store_units(panel + (d / kGroup<T> * kPanel + first) * kGroup<T>, units);
    }
  }
}

/// The same panel in another dtype.
template <typename T, typename S>
void convert_panel(const S* from, int64_t depth, T* panel) {
  for (int64_t unit = 0; unit * kGroup<T> < depth; unit++) {
    for (int64_t first = 0; first < kPanel; first += kLanes) {
      store_units(panel + (unit * kPanel + first) * kGroup<T>, packed_units<T>(from, unit, first, depth));
    }
  }
}

/// Transposes part of a packed weight [outputs, features]: panel(k - first, n) = w(n, k) for the kPanel
/// features from `first`, so that the sum runs over the outputs.
template <typename T, typename S>
void transpose_panel(const S* w, int64_t outputs, int64_t features, int64_t first, T* panel) {
  constexpr int64_t group = kGroup<T>;
  for (int64_t n = 0; n < outputs; n += kLanes) {
    const S* from = w + n / kPanel * panel_stride<S>(features);
    const int64_t units = std::min<int64_t>(kLanes, (outputs - n + group - 1) / group * group);
    for (int64_t k = first; k < first + kPanel; k += kLanes * group) {
      const auto read = [&](int64_t i) __attribute__((always_inline)) {
        // Of a panel of W this reads 1 KiB, too little for the processor to read ahead by itself.
        __builtin_prefetch(from + 2 * panel_stride<S>(features) + (k + i * group) * kPanel, 0, 3);
        return packed_units<T>(from, k / group + i, n % kPanel, features);
      };
      vu block[kLanes];
      // A question for each row would take as long as the transposing.
      if (k + kLanes * group <= features) {
#pragma GCC unroll 16
        for (int64_t i = 0; i < kLanes; i++) block[i] = read(i);
      } else {
        for (int64_t i = 0; i < kLanes; i++) block[i] = k + i * group < features ? read(i) : vu{};
      }
      transpose(block);  // row i: output n + i, along k
      T* const out = panel + n * kPanel + (k - first) * group;
      const auto write = [&](int64_t i) __attribute__((always_inline)) {
        if constexpr (group == 1) {
          store_units(out + i * kPanel, block[i]);
        } else {
          vh low, high;
          for (int lane = 0; lane < 2 * kLanes; lane++) {
            low[lane] = static_cast<uint16_t>(lane / 2 + lane % 2 * 2 * kLanes);
            high[lane] = static_cast<uint16_t>(low[lane] + kLanes);
          }
          const vh even = reinterpret_cast<vh>(block[i]), odd = reinterpret_cast<vh>(block[i + 1]);
          store_units(out + i * kPanel, reinterpret_cast<vu>(__builtin_shuffle(even, odd, low)));
          store_units(out + i * kPanel + 2 * kLanes,
                      reinterpret_cast<vu>(__builtin_shuffle(even, odd, high)));
        }
      };
      if (units == kLanes) {
#pragma GCC unroll 16
        for (int64_t i = 0; i < kLanes; i += group) write(i);
      } else {
        for (int64_t i = 0; i < units; i += group) write(i);
      }
    }
  }
}

/// w[n·stride + d] = panel(n, d).
template <typename T, typename S>
void unpack_rows(const T* panel, int64_t stride, int64_t columns, int64_t depth, S* w) {
  for (int64_t n = 0; n < columns; n++) {
    for (int64_t d = 0; d < depth; d++) {
      w[n * stride + d] = from_float<S>(to_float(panel[packed_index<T>(n, d, depth)]));
    }
  }
}

}  // namespace steptrain::cpu::STEPTRAIN_ISA
