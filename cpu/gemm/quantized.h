// Quantised weights (core/quantized.h) in the layout of the device: codes in panels of outputs, in the order of the elements of
// a panel of bf16 (cpu/gemm/packed.h), so that whole vectors of them become a panel; scales by panel, block and output; what
// the weight shares comes last. Codes of 8 bits are neighbours. Of those of 4 bits eight vectors, of four features,
// are one vector of words: vector j is in bits 4·j to 4·j + 3.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "core/error.h"
#include "core/quantized.h"
#include "cpu/gemm/panel.h"

namespace steptrain::cpu::STEPTRAIN_ISA {

/// Bytes of codes of a panel.
constexpr int64_t code_bytes(Format format, int64_t k) {
  return k * kPanel * bits_of(format) / 8;
}

/// Bytes of scales of a block of a panel; of q4_k and q6_k of a super-block, eight and sixteen of them.
constexpr int64_t scale_bytes(Format format) {
  switch (format) {
    case Format::nf4_double:
      return kPanel;
    case Format::q4_0:
    case Format::q8_0:
      return 2 * kPanel;
    case Format::q4_k:
      return 20 * kPanel;
    case Format::q6_k:
      return 18 * kPanel;
    default:
      return 4 * kPanel;
  }
}

/// Blocks that scale_bytes counts.
constexpr int64_t scale_blocks(Format format, int64_t k) {
  return format == Format::q4_k || format == Format::q6_k ? k / 256 : blocks_of(format, k);
}

constexpr int64_t aligned(int64_t bytes) {
  return (bytes + 63) / 64 * 64;
}

/// Where the parts of a packed weight lie.
struct QuantizedParts {
  uint8_t* codes;
  uint8_t* scales;
  float* shared;  // nf4_double: levels, offset, then the second-level scales
  int64_t panel_codes, panel_scales, bytes;

  explicit QuantizedParts(const TensorView& w) {
    const int64_t n = w[0], k = w[1];
    panel_codes = code_bytes(w.format, k);
    panel_scales = scale_blocks(w.format, k) * scale_bytes(w.format);
    const int64_t first = aligned(panels(n) * panel_codes), second = aligned(panels(n) * panel_scales);
    const int64_t blocks = n * blocks_of(w.format, k);
    const int64_t last = w.format == Format::nf4_double
                             ? 4 * (kNestedLevels + 1 + (blocks + kNestedBlock - 1) / kNestedBlock)
                             : 0;
    codes = w.as<uint8_t>();
    scales = codes + first;
    shared = reinterpret_cast<float*>(scales + second);
    bytes = first + second + aligned(last);
  }
};

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

/// Of the vectors of a pair of features: every output's twice.
struct BlockScales {
  vf scale[4], least[4];
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
  for (int i = 0; i < kLanes; i++) {
    const uint32_t exponent = p[i] >> 10 & 31, fraction = p[i] & 1023u, sign = (p[i] & 0x8000u) << 16;
    uint32_t bits = (exponent == 31 ? 255 : exponent + 112) << 23 | fraction << 13;
    float value;
    std::memcpy(&value, &bits, 4);
    if (exponent == 0) value = static_cast<float>(fraction) * 0x1p-24f;
    std::memcpy(&bits, &value, 4);
    bits |= sign;
    std::memcpy(&value, &bits, 4);
    out[i] = value;
  }
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

/// Two neighbouring features of kLanes outputs in T, made of two vectors in which both of an output are neighbours.
template <typename T>
struct Pair;

template <>
struct Pair<float> {
  vf even, odd;

  Pair(vf first, vf second) {
    typedef float vector __attribute__((vector_size(4 * kLanes)));
    vu lanes;
    for (int i = 0; i < kLanes; i++) lanes[i] = static_cast<uint32_t>(2 * i);
    const auto low = (vector)(first), high = (vector)(second);
    even = (vf)(__builtin_shuffle(low, high, lanes));
    odd = (vf)(__builtin_shuffle(low, high, lanes + 1));
  }
  /// Into the lower or the upper half of the outputs of a panel.
  void store(float* panel, int half) const {
    cpu::STEPTRAIN_ISA::store(panel + half * kLanes, even);
    cpu::STEPTRAIN_ISA::store(panel + kPanel + half * kLanes, odd);
  }
  vf add(vf sum, const float* x) const { return fma(set1(x[1]), odd, fma(set1(x[0]), even, sum)); }
};

#if defined(__AVX512BF16__)
template <>
struct Pair<bf16> {
  __m512bh units;

  Pair(vf first, vf second) : units(_mm512_cvtne2ps_pbh(second, first)) {}
  void store(bf16* panel, int half) const {
    _mm512_storeu_si512(panel + half * 2 * kLanes, reinterpret_cast<__m512i>(units));
  }
  vf add(vf sum, const bf16* x) const {
    int32_t pair;
    std::memcpy(&pair, x, 4);
    return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(_mm512_set1_epi32(pair)), units);
  }
};
#else
template <>
struct Pair<bf16> {
  vf first, second;

  Pair(vf first, vf second) : first(first), second(second) {}
  void store(bf16* panel, int half) const {
    cpu::STEPTRAIN_ISA::store(panel + half * 2 * kLanes, first);
    cpu::STEPTRAIN_ISA::store(panel + (2 * half + 1) * kLanes, second);
  }
};
#endif

template <Format kFormat>
struct Quantized {
  static constexpr int kBits = bits_of(kFormat);
  static constexpr bool kLeast = kFormat == Format::q4_1 || kFormat == Format::q4_k;
  /// Features of a vector of codes.
  static constexpr int64_t kSteps = 16 / kBits;
  /// Features that decode() makes at a time: blocks are multiples of them, or whole rows.
  static constexpr int64_t kRun = 32;

  explicit Quantized(const TensorView& w) : parts_(w), n_(w[0]), k_(w[1]), block_(block_of(kFormat, w[1])) {}

  /// Features [first, last) of a panel, both multiples of four: the same of a panel of T, from its beginning on.
  template <typename T>
  void decode(int64_t panel, int64_t first, int64_t last, T* out) const {
    decode<T>(panel, first, last, [&](int64_t at) { return out + (at - first) * kPanel; });
  }

  /// The same, kRun features at a time, of which place(first of them) says where they go; called in ascending order.
  template <typename T, typename Place>
  requires std::is_invocable_r_v<T*, Place, int64_t>
  void decode(int64_t panel, int64_t first, int64_t last, const Place& place) const {
    T* out = nullptr;
    each_pair(
        panel, first, last, [&](int64_t k, const vf(&elements)[4]) __attribute__((always_inline)) {
          const int64_t at = (k - first) % kRun;
          if (at == 0) out = place(k);
          for (int half = 0; half < 2; half++)
            Pair<T>(elements[2 * half], elements[2 * half + 1]).store(out + at * kPanel, half);
        });
  }

  /// body(k, elements) for the pairs of features k, k + 1 of [first, last) in ascending order: vectors in which both of an output
  /// are neighbours.
  template <typename Body>
  inline __attribute__((always_inline)) void each_pair(int64_t panel, int64_t first, int64_t last,
                                                       const Body& body) const {
    const auto value = values();
    const uint8_t* codes = parts_.codes + panel * parts_.panel_codes + first * kPanel * kBits / 8;
    for (int64_t at = first; at < last;) {
      const int64_t end = std::min(last, (at / block_ + 1) * block_);
      const BlockScales scales = scales_of(panel, at / block_);
      for (; at < end; at += kSteps, codes += 4 * kLanes) {
        // Codes come from memory, and as few at a time as the processor does not read ahead of itself; of the panels after
        // this one, too.
        __builtin_prefetch(codes + 4096, 0, 3);
        const vu word = load_units(codes);
#pragma GCC unroll 2
        for (int pair = 0; pair < kSteps / 2; pair++) {
          vf elements[4];
#pragma GCC unroll 4
          for (int v = 0; v < 4; v++) {
            if constexpr (kBits == 4) {
              elements[v] = value(word >> (4 * (4 * pair + v)));
            } else {
              elements[v] = value(codes + v * kLanes);
            }
            if constexpr (kLeast) {
              // With the bits of two operations: the product, of a half with up to six bits and a code, has 21 at most.
              elements[v] = fma(elements[v], scales.scale[v], scales.least[v]);
            } else {
              elements[v] *= scales.scale[v];
            }
          }
          body(at + 2 * pair, elements);
        }
      }
    }
  }

 private:
  static auto values() {
    if constexpr (is_nf4(kFormat)) {
      float levels[16];
      std::copy(kNf4.begin(), kNf4.end(), levels);
      return Levels(levels);
    } else if constexpr (kBits == 4) {
      float levels[16];
      for (int i = 0; i < 16; i++) levels[i] = static_cast<float>(kFormat == Format::q4_0 ? i - 8 : i);
      return Levels(levels);
    } else if constexpr (kFormat == Format::int8 || kFormat == Format::q6_k || kFormat == Format::q8_0) {
      return Signed{};
    } else {
      return E4m3{};
    }
  }

  BlockScales scales_of(int64_t panel, int64_t block) const {
    const OutputScales own = scales_by_output(panel, block);
    BlockScales s;
    for (int v = 0; v < 4; v++) {
      s.scale[v] = twice(own.scale[v / 2], v % 2 * kLanes / 2);
      if constexpr (kLeast) s.least[v] = twice(own.least[v / 2], v % 2 * kLanes / 2);
    }
    return s;
  }

  OutputScales scales_by_output(int64_t panel, int64_t block) const {
    const uint8_t* const p = parts_.scales + panel * parts_.panel_scales;
    OutputScales s{};
    for (int half = 0; half < 2; half++) {
      const int64_t lane = half * kLanes;
      if constexpr (kFormat == Format::q4_0 || kFormat == Format::q8_0) {
        s.scale[half] = load_halves(reinterpret_cast<const uint16_t*>(p) + block * kPanel + lane);
      } else if constexpr (kFormat == Format::q4_1) {
        const auto* const halves = reinterpret_cast<const uint16_t*>(p) + 2 * block * kPanel + lane;
        s.scale[half] = load_halves(halves), s.least[half] = load_halves(halves + kPanel);
      } else if constexpr (kFormat == Format::q4_k) {
        const uint8_t* const super = p + block / 8 * scale_bytes(kFormat);
        const auto* const halves = reinterpret_cast<const uint16_t*>(super) + lane;
        const uint8_t* const own = super + 4 * kPanel + block % 8 * 2 * kPanel + lane;
        s.scale[half] = load_halves(halves) * load_bytes(own);
        // Not 0 - product, which would lose the sign of a zero.
        s.least[half] = load_halves(halves + kPanel) * load_bytes(own + kPanel) * set1(-1.0f);
      } else if constexpr (kFormat == Format::q6_k) {
        const uint8_t* const super = p + block / 16 * scale_bytes(kFormat);
        s.scale[half] = load_halves(reinterpret_cast<const uint16_t*>(super) + lane) *
                        Signed{}(super + 2 * kPanel + block % 16 * kPanel + lane);
      } else if constexpr (kFormat == Format::nf4_double) {
        s.scale[half] = nested(panel, block, p + block * kPanel + lane, lane);
      } else {
        s.scale[half] = load(reinterpret_cast<const float*>(p) + block * kPanel + lane);
      }
    }
    return s;
  }

  /// level·scale + offset, where the blocks of the second level count the first-level ones of all rows.
  vf nested(int64_t panel, int64_t block, const uint8_t* codes, int64_t lane) const {
    const float* const levels = parts_.shared;
    const float* const scales = levels + kNestedLevels + 1;
    const int64_t row = k_ / block_;
    const int64_t first = (panel * kPanel + lane) * row + block;
    // Padding has no block of its own.
    const int64_t last = n_ * row - 1;
#if defined(__AVX512F__)
    const __m512i code = _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(codes)));
    const vf level = _mm512_i32gather_ps(code, levels, 4);
    const int64_t least = std::min(first, last) / kNestedBlock, most = last / kNestedBlock;
    const vs lanes = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    const vs from_least =
        lanes * static_cast<int32_t>(row) + static_cast<int32_t>(first - least * kNestedBlock);
    __m512i at = _mm512_srli_epi32(reinterpret_cast<__m512i>(from_least), 8);
    at = _mm512_min_epi32(at, _mm512_set1_epi32(static_cast<int32_t>(most - least)));
    // Of up to 16,384 features neighbours; a gather takes much longer.
    const vf scale =
        row <= kNestedBlock
            ? _mm512_permutexvar_ps(
                  at, load(scales + least, static_cast<int>(std::min<int64_t>(kLanes, most - least + 1))))
            : _mm512_i32gather_ps(at, scales + least, 4);
    return level * scale + set1(levels[kNestedLevels]);
#else
    float level[kLanes], scale[kLanes];
    for (int i = 0; i < kLanes; i++) {
      level[i] = levels[codes[i]];
      scale[i] = scales[std::min(first + i * row, last) / kNestedBlock];
    }
    return load(level) * load(scale) + set1(levels[kNestedLevels]);
#endif
  }

  QuantizedParts parts_;
  int64_t n_, k_, block_;
};

/// body(Quantized<format>) of a quantised weight.
template <typename Body>
void by_format(const TensorView& w, const Body& body) {
  switch (w.format) {
#define STEPTRAIN_FORMAT(format) \
  case Format::format:           \
    return body(Quantized<Format::format>(w))
    STEPTRAIN_FORMAT(nf4);
    STEPTRAIN_FORMAT(nf4_double);
    STEPTRAIN_FORMAT(int8);
    STEPTRAIN_FORMAT(e4m3);
    STEPTRAIN_FORMAT(e4m3_128);
    STEPTRAIN_FORMAT(q4_0);
    STEPTRAIN_FORMAT(q4_1);
    STEPTRAIN_FORMAT(q4_k);
    STEPTRAIN_FORMAT(q6_k);
    STEPTRAIN_FORMAT(q8_0);
#undef STEPTRAIN_FORMAT
    case Format::none:
      break;
  }
}

/// Features [first, last) of a panel in T, both multiples of four.
template <typename T>
void dequantize_panel(const TensorView& w, int64_t panel, int64_t first, int64_t last, T* out) {
  by_format(w, [&](const auto& quantized) { quantized.decode(panel, first, last, out); });
}

/// transpose_panel (cpu/gemm/panel.h) of a quantised weight: the kPanel features from `first` on, with the sum over `count`
/// outputs from n0 on, a multiple of kPanel.
template <typename T>
void transpose_quantized(const TensorView& w, int64_t n0, int64_t count, int64_t first, T* panel) {
  const int64_t features = std::min(kPanel, w[1] - first);
  by_format(w, [&](const auto& quantized) {
    for (int64_t n = 0; n < count; n += kPanel) {
      alignas(64) T square[kPanel * kPanel];
      quantized.decode((n0 + n) / kPanel, first, first + features, square);
      transpose_panel<T>(square, std::min(kPanel, count - n), features, 0, panel + n * kPanel);
    }
  });
}

/// The view with the dtype that values of a quantised weight are rounded to; of floats, as it is. Products of `linear` go by
/// the dtype of their rows; the head and readers of single rows by this.
inline TensorView valued(TensorView w, DType dtype) {
  if (w.format != Format::none) w.dtype = dtype;
  return w;
}

}  // namespace steptrain::cpu::STEPTRAIN_ISA
