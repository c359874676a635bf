// The inner products of attention. Operands consist of 4-byte units: a `Single` unit is a float, one step of
// a sum; a `Paired` unit is two bf16, two steps that one dot-product instruction adds. The left operand of a
// tile is broadcast unit by unit, the right one is read in vectors, and every element adds its steps in
// ascending order. VDPBF16PS adds the upper half's product first, each by a multiply-add, so of two rows in
// units the earlier is the upper half: a sum over rows then has the same bits wherever pairs begin. (BFDOT of
// ARM adds both products at once.)
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
  /// 2^x / 2^m, m integral, as exactly as the products take it.
  static vf power(vf x, vf m = zero()) { return exp2(x, m); }
  /// A vector of units as they lie in memory; with n, only the first n steps of each, the others are zero.
  static vf stored_units(const T* units) { return load(units); }
  static vf stored_units(const T* units, int64_t n) { return n > 0 ? load(units) : zero(); }
  /// A vector of elements of a row of units.
  static void store_elements(float* units, int64_t element, vf x) { store(units + element, x); }
  /// A vector of units into a row of which n elements are left.
  static void store_units(T* row, vf x, int64_t n) {
    n >= kLanes ? store(row, x) : store(row, x, static_cast<int>(n));
  }
};

#if defined(__AVX512BF16__)
struct Paired {
  using Storage = bf16;
  static constexpr int64_t kSteps = 2;

  static vf dot(vf a, vf b, vf c) {
    return _mm512_dpbf16_ps(c, reinterpret_cast<__m512bh>(a), reinterpret_cast<__m512bh>(b));
  }
  static vf units(const bf16* row, int64_t n) {
    if (n >= 2 * kLanes) return stored_units(row);
    return _mm512_castsi512_ps(_mm512_maskz_loadu_epi16(first(n), row));
  }
  static void store_units(bf16* row, vf x, int64_t n) {
    n >= 2 * kLanes ? _mm512_storeu_ps(row, x)
                    : _mm512_mask_storeu_epi16(row, first(n), _mm512_castps_si512(x));
  }
  static vf interleave(const bf16* earlier, const bf16* later, int64_t n) {
    __m256i low, high;
    if (n >= kLanes) {
      low = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(later));
      high = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(earlier));
    } else {
      low = _mm256_maskz_loadu_epi16(first(n), later);
      high = _mm256_maskz_loadu_epi16(first(n), earlier);
    }
    return _mm512_castsi512_ps(
        _mm512_or_si512(_mm512_cvtepu16_epi32(low), _mm512_slli_epi32(_mm512_cvtepu16_epi32(high), 16)));
  }
  static vf stored_units(const bf16* units) { return _mm512_loadu_ps(units); }
  static vf stored_units(const bf16* units, int64_t n) {
    const __m512i mask = _mm512_set1_epi32(n >= 2 ? -1 : n == 1 ? static_cast<int>(0xffff0000) : 0);
    return _mm512_castsi512_ps(_mm512_and_si512(mask, _mm512_loadu_si512(units)));
  }
  static vf round(vf earlier, vf later) {
    const auto halves = reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(earlier, later));
    const __m512i lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m512i order =
        _mm512_add_epi32(_mm512_mullo_epi32(lanes, _mm512_set1_epi32(0x10001)), _mm512_set1_epi32(0x100000));
    return _mm512_castsi512_ps(_mm512_permutexvar_epi16(order, halves));
  }
  static vf power(vf x, vf m = zero()) { return exp2_to_bf16(x, m); }
  static void store_elements(float* units, int64_t element, vf x) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(reinterpret_cast<bf16*>(units) + element),
                        _mm256_rol_epi32(round_bf16(x), 16));
  }

 private:
  static __mmask32 first(int64_t n) { return n > 0 ? (__mmask32{1} << n) - 1 : 0; }
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
  static vf interleave(const bf16* earlier, const bf16* later, int64_t n) {
    return paired(four(later, n), four(earlier, n));
  }
  static vf stored_units(const bf16* units) { return reinterpret_cast<vf>(vld1q_u16(bits(units))); }
  static vf stored_units(const bf16* units, int64_t n) {
    const uint32x4_t mask = vdupq_n_u32(n >= 2 ? ~0u : n == 1 ? 0xffff0000u : 0u);
    return reinterpret_cast<vf>(vandq_u32(mask, reinterpret_cast<uint32x4_t>(vld1q_u16(bits(units)))));
  }
  static vf round(vf earlier, vf later) { return paired(round_bf16(later), round_bf16(earlier)); }
  static vf power(vf x, vf m = zero()) { return exp2_to_bf16(x, m); }
  static void store_elements(float* units, int64_t element, vf x) {
    vst1_u16(reinterpret_cast<uint16_t*>(units) + element, vrev32_u16(round_bf16(x)));
  }
  static void store_units(bf16* row, vf x, int64_t n) {
    std::memcpy(row, &x, static_cast<size_t>(std::min<int64_t>(n, 2 * kLanes)) * sizeof(bf16));
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
inline void pack_interleaved(const typename Operand::Storage* earlier, const typename Operand::Storage* later,
                             int64_t n, float* out) {
  for (int64_t d = 0; d < n; d += kLanes) store(out + d, Operand::interleave(earlier + d, later + d, n - d));
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

/// factor · columns[d · stride + row] as rows of n elements; `count` of kLanes rows are written.
template <typename Operand>
inline void unpack_columns(const float* columns, int64_t stride, vf factor,
                           typename Operand::Storage* const (&rows)[kLanes], int count, int64_t n) {
  constexpr int kSteps = Operand::kSteps;
  for (int64_t d = 0; d < n; d += kSteps * kLanes) {
    vf block[kLanes] = {};
    for (int i = 0; i < kLanes && d + i * kSteps < n; i++) {
      const float* const column = columns + (d + i * kSteps) * stride;
      block[i] = Operand::round(load(column + (kSteps - 1) * stride) * factor, load(column) * factor);
    }
    transpose(block);
    for (int i = 0; i < count; i++) Operand::store_units(rows[i] + d, block[i], n - d);
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
