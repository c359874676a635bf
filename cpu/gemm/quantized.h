// Quantised weights (core/quantized.h) in the layout of the device: codes in panels of outputs (cpu/gemm/packed.h), so that
// whole vectors of them become the units of a panel of f32 or bf16; scales by panel, block and output; what the weight
// shares comes last. Codes of 32 bits serve lane i: of vector j its bits from j·bits on, where vectors are, in turn, the
// even and the odd feature of the first half of the panel's outputs, of its second half, and so on.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "core/error.h"
#include "core/quantized.h"
#include "cpu/gemm/panel.h"

namespace steptrain::cpu::STEPTRAIN_ISA {

/// Bytes of codes of a panel.
constexpr int64_t code_bytes(Format format, int64_t k) {
  return k * kPanel * bits_of(format) / 8;
}

/// Bytes of scales of a block of a panel; of q4_k of a super-block, eight of them.
constexpr int64_t scale_bytes(Format format) {
  switch (format) {
    case Format::nf4_double:
      return kPanel;
    case Format::q4_0:
    case Format::q8_0:
      return 2 * kPanel;
    case Format::q4_k:
      return 20 * kPanel;
    default:
      return 4 * kPanel;
  }
}

/// Blocks that scale_bytes counts.
constexpr int64_t scale_blocks(Format format, int64_t k) {
  return format == Format::q4_k ? k / 256 : blocks_of(format, k);
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
    // What is read ahead of the last vector of codes stays within.
    bytes = first + second + aligned(last) + 64;
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

/// The lowest eight bits of each lane as a signed number.
struct Signed {
  vf operator()(vu code) const {
    const vs number = reinterpret_cast<vs>(code << 24) >> 24;
    typedef float vector __attribute__((vector_size(4 * kLanes)));
    return (vf)(__builtin_convertvector(number, vector));
  }
};

/// The same as fp8: exponent and fraction in their places of an f32, times 2^120, which is exact, of subnormals too.
struct E4m3 {
  vf operator()(vu code) const {
    const vu bits = (code & 0x80u) << 24 | (code & 0x7fu) << 20;
    return reinterpret_cast<vf>(bits) * set1(0x1p120f);
  }
};

// ---- scales of a block of a panel ------------------------------------------------------------------------------------

/// Of kLanes outputs each.
struct BlockScales {
  vf scale[2], least[2];
};

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

template <Format kFormat>
struct Quantized {
  static constexpr int kBits = bits_of(kFormat);
  static constexpr bool kLeast = kFormat == Format::q4_1 || kFormat == Format::q4_k;
  /// Features of a vector of codes.
  static constexpr int64_t kSteps = 16 / kBits;

  explicit Quantized(const TensorView& w) : parts_(w), n_(w[0]), k_(w[1]), block_(block_of(kFormat, w[1])) {}

  /// Features [first, last) of a panel, both multiples of four: the same of a panel of T, from its beginning on.
  template <typename T>
  void decode(int64_t panel, int64_t first, int64_t last, T* out) const {
    const auto value = values();
    const uint8_t* codes = parts_.codes + panel * parts_.panel_codes + first * kPanel * kBits / 8;
    for (int64_t at = first; at < last;) {
      const int64_t end = std::min(last, (at / block_ + 1) * block_);
      const BlockScales scales = scales_of(panel, at / block_);
      for (; at < end; at += kSteps) {
        const vu word = load_units(codes);
        codes += 4 * kLanes;
#pragma GCC unroll 2
        for (int pair = 0; pair < kSteps / 2; pair++) {
#pragma GCC unroll 2
          for (int half = 0; half < 2; half++) {
            const int j = kBits * (4 * pair + 2 * half);
            const vf even = scaled(value(word >> j), scales, half);
            const vf odd = scaled(value(word >> (j + kBits)), scales, half);
            put(even, odd, out + 2 * pair * kPanel, half);
          }
        }
        out += kSteps * kPanel;
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
    } else if constexpr (kFormat == Format::int8 || kFormat == Format::q8_0) {
      return Signed{};
    } else {
      return E4m3{};
    }
  }

  static vf scaled(vf value, const BlockScales& scales, int half) {
    const vf product = value * scales.scale[half];
    return kLeast ? product + scales.least[half] : product;
  }

  static void put(vf even, vf odd, float* out, int half) {
    store(out + half * kLanes, even);
    store(out + kPanel + half * kLanes, odd);
  }
  static void put(vf even, vf odd, bf16* out, int half) {
#if defined(__AVX512BF16__)
    alignas(64) static constexpr uint16_t kPairs[32] = {0,  16, 1,  17, 2,  18, 3,  19, 4,  20, 5,
                                                        21, 6,  22, 7,  23, 8,  24, 9,  25, 10, 26,
                                                        11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
    const __m512i order = _mm512_load_si512(kPairs);
    const auto both = reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(odd, even));
    _mm512_storeu_si512(out + 2 * half * kLanes, _mm512_permutexvar_epi16(order, both));
#else
    store_units(out + 2 * half * kLanes, round_upper(even) >> 16 | round_upper(odd));
#endif
  }

  BlockScales scales_of(int64_t panel, int64_t block) const {
    const uint8_t* const p = parts_.scales + panel * parts_.panel_scales;
    BlockScales s{};
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
    int64_t at = (panel * kPanel + lane) * row + block;
    float out[kLanes];
    for (int i = 0; i < kLanes; i++, at += row) {
      const bool inside = panel * kPanel + lane + i < n_;
      out[i] = inside ? levels[codes[i]] * scales[at / kNestedBlock] + levels[kNestedLevels] : 0.0f;
    }
    return load(out);
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

/// transpose_panel (cpu/gemm/panel.h) of a quantised weight: the kPanel features from `first` on, with the sum over outputs.
template <typename T>
void transpose_quantized(const TensorView& w, int64_t first, T* panel) {
  const int64_t outputs = w[0], features = std::min(kPanel, w[1] - first);
  by_format(w, [&](const auto& quantized) {
    for (int64_t n = 0; n < outputs; n += kPanel) {
      alignas(64) T square[kPanel * kPanel];
      quantized.decode(n / kPanel, first, first + features, square);
      transpose_panel<T>(square, std::min(kPanel, outputs - n), features, 0, panel + n * kPanel);
    }
  });
}

}  // namespace steptrain::cpu::STEPTRAIN_ISA
