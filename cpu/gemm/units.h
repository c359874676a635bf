// Vectors of 32-bit units, of which the panels of both dtypes consist: one f32, or a pair of bf16 along k.
// Packing needs no more than to load, round, pair and transpose them.
#pragma once

#include <cstdint>
#include <cstring>

#include "cpu/gemm/packed.h"
#include "cpu/simd.h"

namespace steptrain::cpu::STEPTRAIN_ISA {

typedef uint32_t vu __attribute__((vector_size(4 * kLanes)));
typedef uint16_t vh __attribute__((vector_size(4 * kLanes)));

inline vu load_units(const void* p) {
  vu units;
  std::memcpy(&units, p, sizeof units);
  return units;
}
inline void store_units(void* p, vu units) {
  std::memcpy(p, &units, sizeof units);
}

/// bf16 nearest to x, in the upper half of each lane; the lower half is zero.
inline vu round_upper(vf x) {
  const vu bits = reinterpret_cast<vu>(x);
  const vu rounded = bits + 0x7fffu + (bits >> 16 & 1u);
  const vu nan = bits | 0x400000u;
  return ((bits & 0x7fffffffu) > 0x7f800000u ? nan : rounded) & 0xffff0000u;
}

/// The first n of kLanes neighbouring elements as bf16 in the upper half of each lane.
inline vu upper(const float* p, int64_t n) {
  return round_upper(n >= kLanes ? load(p) : load(p, static_cast<int>(n > 0 ? n : 0)));
}
inline vu upper(const bf16* p, int64_t n) {
  return reinterpret_cast<vu>(n >= kLanes ? load(p) : load(p, static_cast<int>(n > 0 ? n : 0)));
}

/// One unit per column from the neighbouring rows p and, for bf16, p + stride, if there is a `second`.
template <typename T, typename S>
vu column_units(const S* p, int64_t stride, int64_t n, bool second) {
  if constexpr (kGroup<T> == 2) {
    const vu even = upper(p, n) >> 16;
    return second ? even | upper(p + stride, n) : even;
  } else {
    (void)stride, (void)second;
    return reinterpret_cast<vu>(n >= kLanes ? load(p) : load(p, static_cast<int>(n > 0 ? n : 0)));
  }
}

/// kLanes units of one row, zero past its first n elements.
template <typename T, typename S>
vu row_units(const S* p, int64_t n) {
  constexpr int64_t elements = kLanes * kGroup<T>;
  if constexpr (sizeof(T) == sizeof(S)) {
    if (n >= elements) return load_units(p);
    T row[elements] = {};
    if (n > 0) std::memcpy(row, p, static_cast<size_t>(n) * sizeof(T));
    return load_units(row);
  } else if constexpr (kGroup<T> == 2) {
    const vu low = upper(p, n), high = n > kLanes ? upper(p + kLanes, n - kLanes) : vu{};
    // The upper halves of both vectors, in order.
    vh mask;
    for (int i = 0; i < 2 * kLanes; i++) mask[i] = static_cast<uint16_t>(2 * i + 1);
    return reinterpret_cast<vu>(
        __builtin_shuffle(reinterpret_cast<vh>(low), reinterpret_cast<vh>(high), mask));
  } else {
    return upper(p, n);  // bf16 widened to f32
  }
}

/// kLanes columns of one row of units in a panel of S, as units of T.
template <typename T, typename S>
vu packed_units(const S* panel, int64_t unit, int64_t column, int64_t depth) {
  constexpr int64_t row = kPanel * kGroup<S>;
  if constexpr (sizeof(T) == sizeof(S)) {
    return load_units(panel + unit * row + column * kGroup<S>);
  } else if constexpr (kGroup<T> == 2) {
    return column_units<T>(panel + 2 * unit * row + column, row, kLanes, 2 * unit + 1 < depth);
  } else {
    const vu pairs = load_units(panel + unit / 2 * row + column * 2);
    return unit % 2 ? pairs & 0xffff0000u : pairs << 16;
  }
}

/// Transposes kLanes × kLanes units.
inline void transpose(vu (&rows)[kLanes]) {
  vf block[kLanes];
  for (int i = 0; i < kLanes; i++) block[i] = reinterpret_cast<vf>(rows[i]);
  transpose(block);
  for (int i = 0; i < kLanes; i++) rows[i] = reinterpret_cast<vu>(block[i]);
}

}  // namespace steptrain::cpu::STEPTRAIN_ISA
