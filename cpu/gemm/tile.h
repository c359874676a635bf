// The register tile under every GEMM-shaped kernel: C[rows, columns] (=|+=) X[rows, k]·panelᵀ with one packed
// panel (cpu/gemm/packed.h) as the right side. X is row-major in the panel's own type. Each element has one
// f32 accumulator, summed in ascending k: a row has the same bits in a tile of any height, and a sum
// continued over several calls has the bits of one call, where every call but the last takes whole steps of
// kSteps<T>. bf16 takes AMX (cpu/gemm/tile_amx.h), vdpbf16ps over pairs of k or bfmmla (cpu/gemm/tile_neon.h) where the
// processor has them, else two fused multiply-adds, even k first.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "cpu/gemm/packed.h"
#include "cpu/gemm/sums.h"
#include "cpu/gemm/tile_amx.h"
#include "cpu/gemm/tile_neon.h"
#include "cpu/simd.h"

namespace steptrain::cpu::STEPTRAIN_ISA {

/// Rows of the tallest tile. Two vectors per panel row make 28 accumulators of 32 registers (AVX-512), 12 of
/// 16 (AVX2); two more hold the panel row, one the broadcast element of X. A step of k is 28 multiply-adds,
/// 14 clocks at two a clock, beside 16 loads (2 of the panel, 14 broadcasts), 8 clocks at two a clock:
/// arithmetic is the bound, with 28 chains where latency 4 needs 8.
#if defined(__AVX512F__)
template <typename T>
constexpr int kTileRows = 14;
#elif defined(STEPTRAIN_NEON)
template <typename T>
constexpr int kTileRows = neon_tile::kRows<T>;
#else
template <typename T>
constexpr int kTileRows = 6;
#endif
#if defined(__AMX_BF16__)
template <>
constexpr int kTileRows<bf16> = amx_tile::kRows;
#endif

/// Neighbouring k that are summed before they are added to the accumulator: parts of a sum over k are multiples of it.
template <typename T>
constexpr int64_t kSteps = kGroup<T>;
#if defined(__AMX_BF16__)
template <>
constexpr int64_t kSteps<bf16> = amx_tile::kDepth;
#elif defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)
template <>
constexpr int64_t kSteps<bf16> = neon_tile::kDepth;
#endif

/// c[rows][kTileStride] = 0, the sums of a depth of 0.
inline void zero_sums(int64_t rows, float* c) {
  std::fill_n(c, rows * kTileStride, 0.0f);
}

namespace tile {

/// One step over kGroup<T> neighbouring k: `Columns` holds them for every column of the panel, `Row` for one
/// row of X.
template <typename T>
struct Step;

template <>
struct Step<float> {
  using Columns = vf;
  using Row = vf;
  static Columns columns(const float* panel) { return load(panel); }
  static Row row(const float* x) { return set1(*x); }
  static vf add(vf acc, Row x, Columns w) { return fma(x, w, acc); }
};

#if defined(__AVX512BF16__)
template <>
struct Step<bf16> {
  using Columns = __m512bh;
  using Row = __m512bh;
  static Columns columns(const bf16* panel) { return reinterpret_cast<__m512bh>(_mm512_loadu_si512(panel)); }
  static Row row(const bf16* x) {
    int32_t pair;
    std::memcpy(&pair, x, 4);
    return reinterpret_cast<__m512bh>(_mm512_set1_epi32(pair));
  }
  static Row last(const bf16* x) { return reinterpret_cast<__m512bh>(_mm512_set1_epi32(x->bits)); }
  static vf add(vf acc, Row x, Columns w) { return _mm512_dpbf16_ps(acc, x, w); }
};
#else
template <>
struct Step<bf16> {
  struct Columns {
    vf even, odd;
  };
  using Row = Columns;
  static Row widen(uint32_t pair) {
    const uint32_t even = pair << 16, odd = pair & 0xffff0000u;
    float a, b;
    std::memcpy(&a, &even, 4);
    std::memcpy(&b, &odd, 4);
    return {set1(a), set1(b)};
  }
  static Columns columns(const bf16* panel) {
    typedef uint32_t vu __attribute__((vector_size(4 * kLanes)));
    vu pairs;
    std::memcpy(&pairs, panel, sizeof pairs);
    return {reinterpret_cast<vf>(pairs << 16), reinterpret_cast<vf>(pairs & 0xffff0000u)};
  }
  static Row row(const bf16* x) {
    uint32_t pair;
    std::memcpy(&pair, x, 4);
    return widen(pair);
  }
  static Row last(const bf16* x) { return widen(x->bits); }
  static vf add(vf acc, Row x, Columns w) { return fma(x.odd, w.odd, fma(x.even, w.even, acc)); }
};
#endif

template <int kRows, int kVectors, typename T>
inline __attribute__((always_inline)) void add_step(vf (&acc)[kRows][kVectors],
                                                    const T* const (&rows)[(kRows + 2) / 3], int64_t stride,
                                                    int64_t k, const T* panel) {
  typename Step<T>::Columns w[kVectors];
#pragma GCC unroll 2
  for (int v = 0; v < kVectors; v++) w[v] = Step<T>::columns(panel + v * kLanes * kGroup<T>);
#pragma GCC unroll 16
  for (int r = 0; r < kRows; r++) {
    const auto x = Step<T>::row(rows[r / 3] + k + r % 3 * stride);
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; v++) acc[r][v] = Step<T>::add(acc[r][v], x, w[v]);
  }
}

template <int kRows, int kVectors, int64_t kAhead, typename T, typename Put>
void run(const T* x, int64_t stride, const T* panel, int64_t k, float* c, bool accumulate, const void* ahead,
         const Put& put) {
  vf acc[kRows][kVectors];
#pragma GCC unroll 16
  for (int r = 0; r < kRows; r++) {
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; v++)
      acc[r][v] = accumulate ? load(c + r * kTileStride + v * kLanes) : zero();
  }
  // One base address serves three rows: base, base + stride and base + 2·stride are one x86 operand each.
  const T* rows[(kRows + 2) / 3];
#pragma GCC unroll 16
  for (int i = 0; i < (kRows + 2) / 3; i++) rows[i] = x + 3 * i * stride;
  const int64_t whole = k / kGroup<T> * kGroup<T>;
  int64_t i = 0;
  // Counting and addresses take ports from the multiply-adds: four steps at a time they take a quarter.
#pragma GCC unroll 4
  for (; i < whole; i += kGroup<T>) {
    if constexpr (kAhead > 0) __builtin_prefetch(static_cast<const T*>(ahead) + i * kAhead, 0, 2);
    add_step<kRows, kVectors, T>(acc, rows, stride, i, panel);
    panel += kPanel * kGroup<T>;
  }
  if constexpr (kGroup<T> == 2) {
    if (k % 2) {
      // The last k of x has no partner. The panel's partner is zero,
      // but what follows x in memory may be NaN, and so its product.
      typename Step<T>::Columns w[kVectors];
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; v++) w[v] = Step<T>::columns(panel + v * kLanes * 2);
#pragma GCC unroll 16
      for (int r = 0; r < kRows; r++) {
        const auto last = Step<T>::last(x + i + r * stride);
#pragma GCC unroll 2
        for (int v = 0; v < kVectors; v++) acc[r][v] = Step<T>::add(acc[r][v], last, w[v]);
      }
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < kRows; r++) {
    if constexpr (std::is_same_v<Put, Kept>) {
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; v++) store(c + r * kTileStride + v * kLanes, acc[r][v]);
    } else {
      put(r, acc[r][0], acc[r][1]);
    }
  }
}

}  // namespace tile

/// c[rows][kTileStride] = or, with `accumulate`, += x[rows, k]·panelᵀ for 1 ≤ rows ≤ kTileRows<T>; row r of x
/// begins at x + r·stride. kVectors = 1 computes the first kLanes columns of the panel only. kAhead: so many
/// elements from `ahead` on are asked for a k, at most a cache line a step (AMX: never, see amx_tile::block). With a `put` the
/// sums go there, of both vectors, and not to c, which is read alone.
template <typename T, int kVectors = 2, int64_t kAhead = 0, typename Put = Kept>
void gemm_tile(int rows, const T* x, int64_t stride, const T* panel, int64_t k, float* c, bool accumulate,
               const void* ahead = nullptr, const Put& put = {}) {
  static_assert(kVectors == 2 || std::is_same_v<Put, Kept>);
#if defined(__AMX_BF16__)
  if constexpr (sizeof(T) == 2) {
    amx_tile::multiply<kVectors>(rows, amx_tile::row_major(x, stride), panel, k, c, accumulate);
    return InMemory{rows, c}(put);
  }
#elif defined(STEPTRAIN_NEON)
  return neon_tile::multiply<T, kVectors, kAhead>(rows, x, stride, panel, k, c, accumulate, ahead, put);
#endif
  switch (rows) {
#define STEPTRAIN_TILE(n) \
  case n:                 \
    return tile::run<n, kVectors, kAhead, T>(x, stride, panel, k, c, accumulate, ahead, put)
    STEPTRAIN_TILE(1);
    STEPTRAIN_TILE(2);
    STEPTRAIN_TILE(3);
    STEPTRAIN_TILE(4);
    STEPTRAIN_TILE(5);
    STEPTRAIN_TILE(6);
#if defined(__AVX512F__)
    STEPTRAIN_TILE(7);
    STEPTRAIN_TILE(8);
    STEPTRAIN_TILE(9);
    STEPTRAIN_TILE(10);
    STEPTRAIN_TILE(11);
    STEPTRAIN_TILE(12);
    STEPTRAIN_TILE(13);
    STEPTRAIN_TILE(14);
#endif
#undef STEPTRAIN_TILE
  }
}

}  // namespace steptrain::cpu::STEPTRAIN_ISA
