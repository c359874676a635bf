// The register tile on NEON, where a vector has four lanes and a panel eight columns. A multiply-add takes one lane of a
// row of X as its factor, so that one load serves four steps: broadcasts, a load each, would be the bound.
//
// bf16 by bfmmla, where the processor has it: two rows of X by two columns of the panel, four k at a time. A panel needs
// no other layout: pairs of k of neighbouring columns are interleaved as they are read.
#pragma once

#if defined(STEPTRAIN_NEON)

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "cpu/gemm/packed.h"
#include "cpu/gemm/sums.h"

namespace steptrain::cpu::STEPTRAIN_ISA::neon_tile {

/// Of 32 registers: 20 accumulators in f32, 8 for four k of the panel, 1 for X; with bfmmla 16, 8 for eight k and 4. Widened
/// bf16 takes 12 and, for the even and the odd k of four pairs, 16.
template <typename T>
constexpr int kRows = 10;
#if defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)
template <>
constexpr int kRows<bf16> = 8;
constexpr int64_t kDepth = 4;  // k that a bfmmla sums before it adds them
#else
template <>
constexpr int kRows<bf16> = 6;
#endif

/// The even (or odd) k of four pairs, widened.
template <bool kOdd>
inline vf widened(uint16x8_t pairs) {
  const uint32x4_t both = vreinterpretq_u32_u16(pairs);
  return vreinterpretq_f32_u32(kOdd ? vandq_u32(both, vdupq_n_u32(0xffff0000u)) : vshlq_n_u32(both, 16));
}

/// kUnits units (cpu/gemm/units.h) of one row of X and of a panel's vector; a unit of bf16 is a pair of k.
template <typename T>
struct Units;

template <>
struct Units<float> {
  using Row = vf;
  using Columns = vf;
  static Row row(const float* x) { return vld1q_f32(x); }
  static Columns columns(const float* panel) { return vld1q_f32(panel); }
  template <int kLane>
  static vf add(vf acc, Row x, Columns w) {
    return vfmaq_laneq_f32(acc, w, x, kLane);
  }
};

template <>
struct Units<bf16> {
  struct Row {
    vf even, odd;
  };
  using Columns = Row;
  static Row row(const bf16* x) { return columns(x); }
  static Columns columns(const bf16* panel) {
    const uint16x8_t pairs = vld1q_u16(bits(panel));
    return {widened<false>(pairs), widened<true>(pairs)};
  }
  template <int kLane>
  static vf add(vf acc, const Row& x, const Columns& w) {
    return vfmaq_laneq_f32(vfmaq_laneq_f32(acc, w.even, x.even, kLane), w.odd, x.odd, kLane);
  }
};

/// `kUnits` units of every row; of X whole vectors are read.
template <int kUnits, int kHeight, int kVectors, typename T>
inline __attribute__((always_inline)) void add_units(vf (&acc)[kHeight][kVectors], const T* x, int64_t stride,
                                                     const T* panel) {
  using U = Units<T>;
  typename U::Columns w[kUnits][kVectors];
#pragma GCC unroll 4
  for (int u = 0; u < kUnits; u++) {
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; v++) w[u][v] = U::columns(panel + (u * kPanel + v * kLanes) * kGroup<T>);
  }
#pragma GCC unroll 16
  for (int r = 0; r < kHeight; r++) {
    const typename U::Row row = U::row(x + r * stride);
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; v++) {
      acc[r][v] = U::template add<0>(acc[r][v], row, w[0][v]);
      if constexpr (kUnits > 1) acc[r][v] = U::template add<1>(acc[r][v], row, w[1][v]);
      if constexpr (kUnits > 2) acc[r][v] = U::template add<2>(acc[r][v], row, w[2][v]);
      if constexpr (kUnits > 3) acc[r][v] = U::template add<3>(acc[r][v], row, w[3][v]);
    }
  }
}

/// The units of X that are fewer than a vector, from a copy: what follows in memory may be NaN, or not mapped.
template <int kHeight, typename T>
void last_units(const T* x, int64_t stride, int64_t k, T (&copy)[kHeight][kLanes * kGroup<T>]) {
  std::memset(static_cast<void*>(copy), 0, sizeof copy);
  for (int r = 0; r < kHeight; r++)
    std::memcpy(static_cast<void*>(copy[r]), x + r * stride, static_cast<size_t>(k) * sizeof(T));
}

/// Asks for `count` elements in two lines.
template <typename T>
void ask(const T* ahead, int64_t count) {
  __builtin_prefetch(ahead, 0, 2);
  __builtin_prefetch(ahead + count / 2, 0, 2);
}

template <typename T, int kHeight, int kVectors, int64_t kAhead, typename Put>
void run(const T* x, int64_t stride, const T* panel, int64_t k, float* c, bool accumulate, const void* ahead,
         const Put& put) {
  constexpr int64_t step = kLanes * kGroup<T>;
  vf acc[kHeight][kVectors];
#pragma GCC unroll 16
  for (int r = 0; r < kHeight; r++) {
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; v++) acc[r][v] = accumulate ? load(c + r * kPanel + v * kLanes) : zero();
  }
  int64_t i = 0;
  for (; i + step <= k; i += step, panel += step * kPanel) {
    if constexpr (kAhead > 0) ask(static_cast<const T*>(ahead) + i * kAhead, step * kAhead);
    add_units<kLanes>(acc, x + i, stride, panel);
  }
  if (i < k) {
    T copy[kHeight][step];
    last_units<kHeight>(x + i, stride, k - i, copy);
    const int64_t units = (k - i + kGroup<T> - 1) / kGroup<T>;
    if (units == 1) add_units<1>(acc, copy[0], step, panel);
    if (units == 2) add_units<2>(acc, copy[0], step, panel);
    if (units == 3) add_units<3>(acc, copy[0], step, panel);
    if (units == 4) add_units<4>(acc, copy[0], step, panel);
  }
#pragma GCC unroll 16
  for (int r = 0; r < kHeight; r++) {
    if constexpr (std::is_same_v<Put, Kept>) {
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; v++) store(c + r * kPanel + v * kLanes, acc[r][v]);
    } else {
      put(r, acc[r][0], acc[r][1]);
    }
  }
}

#if defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)

/// Eight k of two rows, four and four, as bfmmla takes them.
struct Quads {
  bfloat16x8_t first, second;
};
inline Quads two_rows(const bf16* upper, const bf16* lower) {
  const float64x2_t a = vreinterpretq_f64_u16(vld1q_u16(bits(upper)));
  const float64x2_t b = vreinterpretq_f64_u16(vld1q_u16(bits(lower)));
  return {vreinterpretq_bf16_f64(vzip1q_f64(a, b)), vreinterpretq_bf16_f64(vzip2q_f64(a, b))};
}

/// Four k of four columns: two and two. `panel` is the first pair of k, `next` the second.
struct Columns {
  bfloat16x8_t left, right;
};
inline Columns four_columns(const bf16* panel, const bf16* next) {
  const uint32x4_t a = vreinterpretq_u32_u16(vld1q_u16(bits(panel)));
  const uint32x4_t b = vreinterpretq_u32_u16(vld1q_u16(bits(next)));
  return {vreinterpretq_bf16_u32(vzip1q_u32(a, b)), vreinterpretq_bf16_u32(vzip2q_u32(a, b))};
}

/// Eight k of every pair of rows; the last pair of an odd height is its row twice. With kHalf the first four k alone.
template <int kHeight, int kVectors, bool kHalf = false>
inline __attribute__((always_inline)) void add_eight(vf (&acc)[(kHeight + 1) / 2][2 * kVectors],
                                                     const bf16* x, int64_t stride, const bf16* panel) {
  constexpr int64_t pair = 2 * kPanel;
  Columns first[kVectors], second[kVectors];
#pragma GCC unroll 2
  for (int v = 0; v < kVectors; v++) {
    const bf16* const w = panel + v * kLanes * 2;
    first[v] = four_columns(w, w + pair);
    if constexpr (!kHalf) second[v] = four_columns(w + 2 * pair, w + 3 * pair);
  }
#pragma GCC unroll 8
  for (int r = 0; r < kHeight; r += 2) {
    const Quads rows = two_rows(x + r * stride, x + (r + 1 < kHeight ? r + 1 : r) * stride);
    auto& sums = acc[r / 2];
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; v++) {
      sums[2 * v] = vbfmmlaq_f32(sums[2 * v], rows.first, first[v].left);
      sums[2 * v + 1] = vbfmmlaq_f32(sums[2 * v + 1], rows.first, first[v].right);
      if constexpr (!kHalf) {
        sums[2 * v] = vbfmmlaq_f32(sums[2 * v], rows.second, second[v].left);
        sums[2 * v + 1] = vbfmmlaq_f32(sums[2 * v + 1], rows.second, second[v].right);
      }
    }
  }
}

/// Two rows by two columns each, from and to two rows of four columns.
inline vf half(vf a, vf b, bool lower) {
  const float64x2_t p = vreinterpretq_f64_f32(a), q = vreinterpretq_f64_f32(b);
  return vreinterpretq_f32_f64(lower ? vzip2q_f64(p, q) : vzip1q_f64(p, q));
}

template <int kHeight, int kVectors, int64_t kAhead, typename Put>
void run_pairs(const bf16* x, int64_t stride, const bf16* panel, int64_t k, float* c, bool accumulate,
               const void* ahead, const Put& put) {
  constexpr int64_t step = 2 * kDepth;
  vf acc[(kHeight + 1) / 2][2 * kVectors];
#pragma GCC unroll 8
  for (int r = 0; r < kHeight; r += 2) {
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; v++) {
      const float* const from = c + r * kPanel + v * kLanes;
      const vf upper = accumulate ? load(from) : zero();
      const vf lower = accumulate && r + 1 < kHeight ? load(from + kPanel) : zero();
      acc[r / 2][2 * v] = half(upper, lower, false);
      acc[r / 2][2 * v + 1] = half(upper, lower, true);
    }
  }
  int64_t i = 0;
  for (; i + step <= k; i += step, panel += step * kPanel) {
    if constexpr (kAhead > 0) ask(static_cast<const bf16*>(ahead) + i * kAhead, step * kAhead);
    add_eight<kHeight, kVectors>(acc, x + i, stride, panel);
  }
  if (const int64_t rest = k - i; rest > 0) {
    // From copies with zeros behind: what follows in memory may be NaN, or not mapped.
    bf16 left[kHeight][step], right[step * kPanel];
    last_units<kHeight>(x + i, stride, rest, left);
    const int64_t filled = packed_k<bf16>(rest) * kPanel;
    std::memcpy(static_cast<void*>(right), panel, static_cast<size_t>(filled) * sizeof(bf16));
    std::memset(static_cast<void*>(right + filled), 0,
                sizeof right - static_cast<size_t>(filled) * sizeof(bf16));
    if (rest > kDepth) {
      add_eight<kHeight, kVectors>(acc, left[0], step, right);
    } else {
      add_eight<kHeight, kVectors, true>(acc, left[0], step, right);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kHeight; r++) {
    const auto& sums = acc[r / 2];
    const auto vector = [&](int v) { return half(sums[2 * v], sums[2 * v + 1], r % 2); };
    if constexpr (std::is_same_v<Put, Kept>) {
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; v++) store(c + r * kPanel + v * kLanes, vector(v));
    } else {
      put(r, vector(0), vector(1));
    }
  }
}

#endif

/// gemm_tile (cpu/gemm/tile.h) for 1 ≤ rows ≤ kRows<T>.
template <typename T, int kVectors, int64_t kAhead, int kHeight = kRows<T>, typename Put>
void multiply(int rows, const T* x, int64_t stride, const T* panel, int64_t k, float* c, bool accumulate,
              const void* ahead, const Put& put) {
  if constexpr (kHeight > 1) {
    if (rows < kHeight)
      return multiply<T, kVectors, kAhead, kHeight - 1>(rows, x, stride, panel, k, c, accumulate, ahead, put);
  }
#if defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)
  if constexpr (std::is_same_v<T, bf16>)
    return run_pairs<kHeight, kVectors, kAhead>(x, stride, panel, k, c, accumulate, ahead, put);
#endif
  run<T, kHeight, kVectors, kAhead>(x, stride, panel, k, c, accumulate, ahead, put);
}

}  // namespace steptrain::cpu::STEPTRAIN_ISA::neon_tile

#endif
