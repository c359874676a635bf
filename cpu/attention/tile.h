// The inner products of attention. Operands consist of 4-byte units: a `Single` unit is a float, one step of
// a sum; a `Paired` unit is two bf16, two steps that one dot-product instruction adds. The left operand of a
// tile is broadcast unit by unit, the right one is read in vectors,
// and every element adds its steps in ascending order.
#pragma once

#include "cpu/attention/problem.h"
#include "cpu/simd.h"

namespace steptrain::cpu::STEPTRAIN_ISA {

constexpr int kTileRows = 4;  // broadcast rows of a tile
#if defined(__AVX512F__) || defined(STEPTRAIN_NEON)
constexpr int kTileVectors = 4;
#else
constexpr int kTileVectors = 2;
#endif

template <typename T>
struct Single {
  using Storage = T;
  static constexpr int64_t kSteps = 1;  // steps per unit

  static vf dot(vf a, vf b, vf c) { return fma(a, b, c); }
  /// A vector of units from a row of which n elements are left.
  static vf units(const T* row, int64_t n) {
    return n >= kLanes ? load(row) : n > 0 ? load(row, static_cast<int>(n)) : zero();
  }
  /// Units whose steps are rows; one unit here takes one row.
  static vf interleave(const T* row, const T*, int64_t n) { return units(row, n); }
  static vf round(vf row, vf) { return row; }
  /// A vector of units as they lie in memory; with n, only the first n steps of each, the others are zero.
  static vf stored_units(const T* units) { return load(units); }
  static vf stored_units(const T* units, int64_t n) { return n > 0 ? load(units) : zero(); }
  /// A vector of elements of a row of units.
  static void store_elements(float* units, int64_t element, vf x) { store(units + element, x); }
};

#if defined(__AVX512BF16__)
struct Paired {
  using Storage = bf16;
  static constexpr int64_t kSteps = 2;

  static vf dot(vf a, vf b, vf c) {
    return _mm512_dpbf16_ps(c, reinterpret_cast<__m512bh>(a), reinterpret_cast<__m512bh>(b));
  }
  static vf units(const bf16* row, int64_t n) {
    const __mmask32 mask = n >= 32 ? ~__mmask32{0} : n > 0 ? (__mmask32{1} << n) - 1 : 0;
    return _mm512_castsi512_ps(_mm512_maskz_loadu_epi16(mask, row));
  }
  static vf interleave(const bf16* even, const bf16* odd, int64_t n) {
    const __mmask16 mask = lane_mask(static_cast<int>(std::clamp<int64_t>(n, 0, kLanes)));
    const __m512i low = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, even));
    const __m512i high = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, odd));
    return _mm512_castsi512_ps(_mm512_or_si512(low, _mm512_slli_epi32(high, 16)));
  }
  static vf stored_units(const bf16* units) { return _mm512_loadu_ps(units); }
  static vf stored_units(const bf16* units, int64_t n) {
    const __m512i mask = _mm512_set1_epi32(n >= 2 ? -1 : n == 1 ? 0xffff : 0);
    return _mm512_castsi512_ps(_mm512_and_si512(mask, _mm512_loadu_si512(units)));
  }
  static vf round(vf even, vf odd) {
    const __m512i low = _mm512_cvtepu16_epi32(round_bf16(even));
    const __m512i high = _mm512_cvtepu16_epi32(round_bf16(odd));
    return _mm512_castsi512_ps(_mm512_or_si512(low, _mm512_slli_epi32(high, 16)));
  }
  static void store_elements(float* units, int64_t element, vf x) {
    store(reinterpret_cast<bf16*>(units) + element, x);
  }
};
#elif defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)
struct Paired {
  using Storage = bf16;
  static constexpr int64_t kSteps = 2;

  static vf dot(vf a, vf b, vf c) {
    return vbfdotq_f32(c, reinterpret_cast<bfloat16x8_t>(a), reinterpret_cast<bfloat16x8_t>(b));
  }
  static vf units(const bf16* row, int64_t n) {
    if (n >= 2 * kLanes) return reinterpret_cast<vf>(vld1q_u16(bits(row)));
    bf16 t[2 * kLanes] = {};
    if (n > 0) std::memcpy(t, row, static_cast<size_t>(n) * sizeof(bf16));
    return reinterpret_cast<vf>(vld1q_u16(bits(t)));
  }
  static vf interleave(const bf16* even, const bf16* odd, int64_t n) {
    return paired(four(even, n), four(odd, n));
  }
  static vf stored_units(const bf16* units) { return reinterpret_cast<vf>(vld1q_u16(bits(units))); }
  static vf stored_units(const bf16* units, int64_t n) {
    const uint32x4_t mask = vdupq_n_u32(n >= 2 ? ~0u : n == 1 ? 0xffffu : 0u);
    return reinterpret_cast<vf>(vandq_u32(mask, reinterpret_cast<uint32x4_t>(vld1q_u16(bits(units)))));
  }
  static vf round(vf even, vf odd) { return paired(round_bf16(even), round_bf16(odd)); }
  static void store_elements(float* units, int64_t element, vf x) {
    store(reinterpret_cast<bf16*>(units) + element, x);
  }

 private:
  static vf paired(uint16x4_t even, uint16x4_t odd) {
    return reinterpret_cast<vf>(vcombine_u16(vzip1_u16(even, odd), vzip2_u16(even, odd)));
  }
  static uint16x4_t four(const bf16* p, int64_t n) {
    if (n >= kLanes) return vld1_u16(bits(p));
    bf16 t[kLanes] = {};
    if (n > 0) std::memcpy(t, p, static_cast<size_t>(n) * sizeof(bf16));
    return vld1_u16(bits(t));
  }
};
#endif

/// acc[r][v] += Σ_s a[r·a_row + s·a_step] · b[s·b_step + v·kLanes …], s ascending.
template <typename Operand, int R, int V>
inline void accumulate(vf (&acc)[R][V], const float* a, int64_t a_row, int64_t a_step, const float* b,
                       int64_t b_step, int64_t steps) {
  for (int64_t s = 0; s < steps; s++, a += a_step, b += b_step) {
    vf right[V];
#pragma GCC unroll 8
    for (int v = 0; v < V; v++) right[v] = load(b + v * kLanes);
#pragma GCC unroll 8
    for (int r = 0; r < R; r++) {
      const vf left = set1(a[r * a_row]);
#pragma GCC unroll 8
      for (int v = 0; v < V; v++) acc[r][v] = Operand::dot(left, right[v], acc[r][v]);
    }
  }
}

/// body(first, std::integral_constant<int, V>) over groups of at most kTileVectors of `vectors` vectors.
template <int V = kTileVectors, typename F>
inline void by_vectors(int vectors, F body, int first = 0) {
  for (; first + V <= vectors; first += V) body(first, std::integral_constant<int, V>());
  if constexpr (V > 1) {
    if (first < vectors) by_vectors<V - 1>(vectors, body, first);
  }
}

/// A row of n elements as units, zero-filled to a whole number of vectors.
template <typename Operand>
inline void pack_row(const typename Operand::Storage* row, int64_t n, float* out) {
  for (int64_t d = 0; d < n; d += Operand::kSteps * kLanes)
    store(out + d / Operand::kSteps, Operand::units(row + d, n - d));
}

/// Two rows (one where a unit is one step) as units whose steps are the rows, zero-filled likewise.
template <typename Operand>
inline void pack_interleaved(const typename Operand::Storage* even, const typename Operand::Storage* odd,
                             int64_t n, float* out) {
  for (int64_t d = 0; d < n; d += kLanes) store(out + d, Operand::interleave(even + d, odd + d, n - d));
}

/// kLanes rows of n elements each as columns of units: out[unit · stride + row], zero-filled likewise.
template <typename Operand>
inline void pack_columns(const typename Operand::Storage* const (&rows)[kLanes], int64_t n, float* out,
                         int64_t stride) {
  for (int64_t d = 0; d < n; d += Operand::kSteps * kLanes, out += kLanes * stride) {
    vf block[kLanes];
    for (int i = 0; i < kLanes; i++) block[i] = Operand::units(rows[i] + d, n - d);
    transpose(block);
    for (int i = 0; i < kLanes; i++) store(out + i * stride, block[i]);
  }
}

/// columns[d · stride + row] as rows of n elements; `count` of kLanes rows are written.
template <typename T>
inline void unpack_columns(const float* columns, int64_t stride, vf factor, T* const (&rows)[kLanes],
                           int count, int64_t n) {
  for (int64_t d = 0; d < n; d += kLanes) {
    vf block[kLanes];
    for (int i = 0; i < kLanes; i++) block[i] = load(columns + (d + i) * stride) * factor;
    transpose(block);
    const int width = static_cast<int>(std::min<int64_t>(kLanes, n - d));
    for (int i = 0; i < count; i++) store(rows[i] + d, block[i], width);
  }
}

/// Whole vectors of units that a row of n elements takes.
template <typename Operand>
constexpr int64_t padded_units(int64_t n) {
  return round_up((n + Operand::kSteps - 1) / Operand::kSteps, kLanes);
}

/// Calls body(Operand{}) with the operands that multiply storage of `dtype` fastest here.
template <typename F>
void by_operand(DType dtype, F body) {
  if (dtype == DType::f32) return body(Single<float>{});
#if defined(__AVX512BF16__) || defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)
  body(Paired{});
#else
  body(Single<bf16>{});
#endif
}

}  // namespace steptrain::cpu::STEPTRAIN_ISA
