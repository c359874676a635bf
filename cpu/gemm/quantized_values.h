// What products make of the codes of quantised weights (cpu/gemm/quantized.h): their values, the scales of a block of a panel, and
// pairs of features as panels have them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "core/quantized.h"
#include "cpu/gemm/units.h"

namespace steptrain::cpu::STEPTRAIN_ISA {

// ---- values of codes -----------------------------------------------------------------------------------------------

typedef int32_t vs __attribute__((vector_size(4 * kLanes)));

/// The level of the lowest four bits of each lane.
class Levels {
 public:
  explicit Levels(const float (&levels)[16]) {
#if defined(__AVX512F__)
    levels_ = load(levels);
#elif defined(__AVX2__)
    low_ = load(levels), high_ = load(levels + 8);
#else
    std::memcpy(levels_, levels, sizeof levels_);
#endif
  }
  vf operator()(vu code) const {
#if defined(__AVX512F__)
    return _mm512_permutexvar_ps(reinterpret_cast<__m512i>(code), levels_);
#elif defined(__AVX2__)
    const __m256i at = reinterpret_cast<__m256i>(code);
    const __m256 upper = _mm256_castsi256_ps(_mm256_slli_epi32(at, 28));
    return _mm256_blendv_ps(_mm256_permutevar8x32_ps(low_, at), _mm256_permutevar8x32_ps(high_, at), upper);
#else
    vf out;
    for (int i = 0; i < kLanes; i++) out[i] = levels_[code[i] & 15];
    return out;
#endif
  }

 private:
#if defined(__AVX512F__)
  vf levels_;
#elif defined(__AVX2__)
  vf low_, high_;
#else
  float levels_[16];
#endif
};

/// kLanes neighbouring bytes as signed numbers.
inline vs load_signed(const uint8_t* p) {
#if defined(__AVX512F__)
  return reinterpret_cast<vs>(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
#elif defined(__AVX2__)
  return reinterpret_cast<vs>(_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
#else
  vs out;
  for (int i = 0; i < kLanes; i++) out[i] = static_cast<int8_t>(p[i]);
  return out;
#endif
}

struct Signed {
  vf operator()(const uint8_t* codes) const {
    typedef float vector __attribute__((vector_size(4 * kLanes)));
    return (vf)(__builtin_convertvector(load_signed(codes), vector));
  }
};

/// fp8: exponent and fraction in their places of an f32, times 2^120, which is exact, of subnormals too.
struct E4m3 {
  vf operator()(const uint8_t* codes) const {
    const vu bits = reinterpret_cast<vu>(load_signed(codes)) << 20 & 0x87f00000u;
    return reinterpret_cast<vf>(bits) * set1(0x1p120f);
  }
};

// ---- scales of a block of a panel ------------------------------------------------------------------------------------

/// Of kLanes outputs each.
struct OutputScales {
  vf scale[2], least[2];
};

/// Scales of a block of a panel, of kPanel outputs, and the sums of rows over the block (cpu/gemm/scaled.h).
struct BlockScales {
  /// Floats from the scales of a block to those of the next.
  static constexpr int64_t kStride = 2 * kPanel;

  const float* scale;
  bool has_least;     // behind the scales
  const float* sums;  // of row r at r · stride
  int64_t stride;

  vf add(vf total, vf own, int64_t row, int half) const {
    total = fma(load(scale + half * kLanes), own, total);
    if (!has_least) return total;
    return fma(load(scale + kPanel + half * kLanes), set1(sums[row * stride]), total);
  }
  BlockScales next() const { return {scale + kStride, has_least, has_least ? sums + 1 : sums, stride}; }
};

/// Lanes 0, 0, 1, 1, … from `first` on.
inline vf twice(vf x, int first) {
  vu order;
  for (int i = 0; i < kLanes; i++) order[i] = static_cast<uint32_t>(first + i / 2);
  typedef float vector __attribute__((vector_size(4 * kLanes)));
  return (vf)(__builtin_shuffle((vector)(x), order));
}

inline vf load_halves(const uint16_t* p) {
#if defined(__AVX512F__)
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
#elif defined(__F16C__)
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
#else
  vf out;
  for (int i = 0; i < kLanes; i++) out[i] = half_to_float(p[i]);
  return out;
#endif
}

inline vf load_bytes(const uint8_t* p) {
#if defined(__AVX512F__)
  return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
#else
  float values[kLanes];
  for (int i = 0; i < kLanes; i++) values[i] = p[i];
  return load(values);
#endif
}

// ---- pairs of features -----------------------------------------------------------------------------------------------

/// Two neighbouring features of kLanes outputs in T, made of a vector of each.
template <typename T>
struct Pair;
/// The same, made of two vectors in which both features of an output are neighbours.
template <typename T>
struct Neighbours;

template <>
struct Pair<float> {
  vf even, odd;

  /// Into the lower or the upper half of the outputs of a panel.
  void store(float* panel, int half) const {
    cpu::STEPTRAIN_ISA::store(panel + half * kLanes, even);
    cpu::STEPTRAIN_ISA::store(panel + kPanel + half * kLanes, odd);
  }
  vf add(vf sum, const float* x) const { return fma(set1(x[1]), odd, fma(set1(x[0]), even, sum)); }
};

template <>
struct Neighbours<float> : Pair<float> {
  Neighbours(vf first, vf second) {
    typedef float vector __attribute__((vector_size(4 * kLanes)));
    vu lanes;
    for (int i = 0; i < kLanes; i++) lanes[i] = static_cast<uint32_t>(2 * i);
    const auto low = (vector)(first), high = (vector)(second);
    even = (vf)(__builtin_shuffle(low, high, lanes));
    odd = (vf)(__builtin_shuffle(low, high, lanes + 1));
  }
};

#if defined(__AVX512BF16__)
struct Units {
  __m512bh units;

  void store(bf16* panel, int half) const {
    _mm512_storeu_si512(panel + half * 2 * kLanes, reinterpret_cast<__m512i>(units));
  }
  vf add(vf sum, const bf16* x) const {
    int32_t pair;
    std::memcpy(&pair, x, 4);
    return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(_mm512_set1_epi32(pair)), units);
  }
};
template <>
struct Pair<bf16> : Units {
  Pair(vf even, vf odd) {
    vh order;
    for (int i = 0; i < 2 * kLanes; i++) order[i] = static_cast<uint16_t>(i / 2 + i % 2 * kLanes);
    const auto both = reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(odd, even));
    units = reinterpret_cast<__m512bh>(_mm512_permutexvar_epi16(reinterpret_cast<__m512i>(order), both));
  }
};
template <>
struct Neighbours<bf16> : Units {
  Neighbours(vf first, vf second) : Units{_mm512_cvtne2ps_pbh(second, first)} {}
};
#else
template <>
struct Pair<bf16> {
  vf even, odd;

  void store(bf16* panel, int half) const {
    store_units(panel + half * 2 * kLanes, round_upper(even) >> 16 | round_upper(odd));
  }
};
template <>
struct Neighbours<bf16> {
  vf first, second;

  void store(bf16* panel, int half) const {
    cpu::STEPTRAIN_ISA::store(panel + half * 2 * kLanes, first);
    cpu::STEPTRAIN_ISA::store(panel + (2 * half + 1) * kLanes, second);
  }
};
#endif

// ---- levels of scales ----------------------------------------------------------------------------------------------

#if defined(__AVX512F__)
/// The 256 levels as halves of their bits, the lower ones first: a look-up of words finds 64 of them, and a gather takes much
/// longer. A packed weight has them so.
class NestedLevels {
 public:
  explicit NestedLevels(const float* halves) : halves_(reinterpret_cast<const uint16_t*>(halves)) {}
  static void pack(const uint8_t* levels, float* to) {
    uint16_t halves[2][kNestedLevels];
    for (int i = 0; i < 2 * kNestedLevels; i++) std::memcpy(&halves[i % 2][i / 2], levels + 2 * i, 2);
    std::memcpy(to, halves, sizeof halves);
  }
  vf operator()(const uint8_t* codes, int half) const {
    const __m512i at = _mm512_cvtepu8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(codes)));
    const __m512i low = find(halves_, at), high = find(halves_ + kNestedLevels, at);
    const auto words = [&](__m512i all) {
      return _mm512_cvtepu16_epi32(half ? _mm512_extracti64x4_epi64(all, 1) : _mm512_castsi512_si256(all));
    };
    return _mm512_castsi512_ps(_mm512_or_si512(_mm512_slli_epi32(words(high), 16), words(low)));
  }

 private:
  static __m512i find(const uint16_t* table, __m512i at) {
    const auto in = [&](int quarter) {
      const uint16_t* const first = table + 64 * quarter;
      return _mm512_permutex2var_epi16(_mm512_loadu_si512(first), at, _mm512_loadu_si512(first + 32));
    };
    const __mmask32 odd = _mm512_test_epi16_mask(at, _mm512_set1_epi16(64));
    const __mmask32 upper = _mm512_test_epi16_mask(at, _mm512_set1_epi16(128));
    return _mm512_mask_blend_epi16(upper, _mm512_mask_blend_epi16(odd, in(0), in(1)),
                                   _mm512_mask_blend_epi16(odd, in(2), in(3)));
  }
  const uint16_t* halves_;
};
struct NoLevels {
  explicit NoLevels(const float*) {}
};
#endif

}  // namespace steptrain::cpu::STEPTRAIN_ISA
