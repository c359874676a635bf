// One head rotated by rope's tables, which rope and cache_write share.
#pragma once

#include <cstdint>

#include "core/error.h"
#include "core/tensor.h"
#include "cpu/simd.h"

namespace steptrain::cpu::STEPTRAIN_ISA {

/// Checks that rope's tables are half as wide as a head of `size` elements.
inline void check_width(const char* op, int64_t size, const TensorView& cosines) {
  if (size != 2 * cosines[1])
    throw Error("E_SHAPE", format("%s: head size %lld needs tables of width %lld with two halves, got %lld",
                                  op, static_cast<long long>(size), static_cast<long long>(size / 2),
                                  static_cast<long long>(cosines[1])));
}

/// The same, and that `positions` are in the tables.
inline void check_tables(const char* op, int64_t size, const TensorView& cosines,
                         const TensorView& positions) {
  check_width(op, size, cosines);
  const int32_t* position = positions.as<int32_t>();
  for (int64_t t = 0; t < positions[0]; t++) {
    if (position[t] < 0 || position[t] >= cosines[0])
      throw Error("E_RANGE",
                  format("%s: positions[%lld] is %d, outside 0..%lld", op, static_cast<long long>(t),
                         position[t], static_cast<long long>(cosines[0] - 1)));
  }
}

/// y = x rotated by the angles of `cosine` and `sine` [half], or by their negatives where `sign` is -1. y may be x.
template <typename T>
void rotate_head(const T* x, T* y, const float* cosine, const float* sine, int64_t half, float sign) {
  const vf direction = set1(sign);
  int64_t e = 0;
  for (; e + kLanes <= half; e += kLanes) {
    const vf a = load(x + e), b = load(x + half + e), c = load(cosine + e), s = load(sine + e) * direction;
    store(y + e, fma(a, c, zero() - b * s));
    store(y + half + e, fma(b, c, a * s));
  }
  if (const int n = static_cast<int>(half - e); n > 0) {
    const vf a = load(x + e, n), b = load(x + half + e, n), c = load(cosine + e, n);
    const vf s = load(sine + e, n) * direction;
    store(y + e, fma(a, c, zero() - b * s), n);
    store(y + half + e, fma(b, c, a * s), n);
  }
}

}  // namespace steptrain::cpu::STEPTRAIN_ISA
