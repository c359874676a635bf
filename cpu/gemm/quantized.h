// Quantised weights (core/quantized.h) in the layout of the device: codes in panels of outputs, in the order of the elements of
// a panel of bf16 (cpu/gemm/packed.h), so that whole vectors of them become a panel; scales by panel, block and output; what
// the weight shares comes last. Codes of 8 bits are neighbours. Of those of 4 bits four vectors of the panel, two pairs of
// features of both halves of its outputs, are one vector: vector j is in bits 4·j to 4·j + 3 of each 16.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "core/error.h"
#include "core/quantized.h"
#include "cpu/gemm/panel.h"
#include "cpu/gemm/quantized_values.h"

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
  float* shared;  // nf4_double: levels (cpu/gemm/quantized_values.h), offset, then the second-level scales
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

template <Format kFormat>
struct Quantized {
  static constexpr int kBits = bits_of(kFormat);
  static constexpr bool kLeast = kFormat == Format::q4_1 || kFormat == Format::q4_k;
  /// Features of a vector of codes.
  static constexpr int64_t kSteps = 16 / kBits;
  /// Features that decode() makes at a time: blocks are multiples of them, or whole rows.
  static constexpr int64_t kRun = 32;
  /// Bytes of codes that are asked for ahead: they come from memory, and as few at a time as the processor does not read ahead
  /// of itself; of the panels after this one, too.
  static constexpr int64_t kAhead = 8192;

  explicit Quantized(const TensorView& w)
      : parts_(w),
        n_(w[0]),
        k_(w[1]),
        block_(block_of(kFormat, w[1]))
#if defined(__AVX512F__)
        ,
        nested_levels_(parts_.shared)
#endif
  {
  }

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
    each_pair<T>(
        panel, first, last, [&](int64_t k, const auto(&halves)[2]) __attribute__((always_inline)) {
          const int64_t at = (k - first) % kRun;
          if (at == 0) out = place(k);
          for (int half = 0; half < 2; half++) halves[half].store(out + at * kPanel, half);
        });
  }

  /// body(k, halves) for the pairs of features k, k + 1 of [first, last) in ascending order, of both halves of a panel's outputs.
  template <typename T, typename Body>
  inline __attribute__((always_inline)) void each_pair(int64_t panel, int64_t first, int64_t last,
                                                       const Body& body) const {
    const auto value = values();
    const uint8_t* codes = codes_of(panel, first);
    for (int64_t at = first; at < last;) {
      const int64_t end = std::min(last, (at / block_ + 1) * block_);
      const OutputScales own = scales_of(panel, at / block_);
      [[maybe_unused]] const vf scale[4] = {twice(own.scale[0], 0), twice(own.scale[0], kLanes / 2),
                                            twice(own.scale[1], 0), twice(own.scale[1], kLanes / 2)};
      for (; at < end; at += kSteps, codes += 4 * kLanes) {
        __builtin_prefetch(codes + kAhead, 0, 3);
        if constexpr (kBits == 4) {
          const vu word = load_units(codes);
#pragma GCC unroll 2
          for (int pair = 0; pair < 2; pair++) {
            const auto half = [&](int h) __attribute__((always_inline)) {
              const vu units = word >> (4 * (2 * pair + h));
              return Pair<T>{scaled(value(units), own, h), scaled(value(units >> 16), own, h)};
            };
            const Pair<T> halves[2] = {half(0), half(1)};
            body(at + 2 * pair, halves);
          }
        } else {
          const auto half = [&](int h) __attribute__((always_inline)) {
            return Neighbours<T>{value(codes + 2 * h * kLanes) * scale[2 * h],
                                 value(codes + (2 * h + 1) * kLanes) * scale[2 * h + 1]};
          };
          const Neighbours<T> halves[2] = {half(0), half(1)};
          body(at, halves);
        }
      }
    }
  }

#if defined(__AVX512BF16__)
  /// body(k, i, halves) likewise, of the codes' own values as bf16: exact, but for NF4's levels. [first, last) is the first of kRuns
  /// neighbouring runs of features, which take turns; i counts them. What comes is asked for in the order of memory, as the
  /// processor's own reading ahead wants it.
  template <int kRuns, typename Body>
  inline __attribute__((always_inline)) void each_code(int64_t panel, int64_t first, int64_t last,
                                                       const Body& body) const {
    const int64_t features = last - first, run = features * kPanel * kBits / 8;
    const uint8_t *codes = codes_of(panel, first), *next = codes + kAhead;
    [[maybe_unused]] const auto value = values();
    [[maybe_unused]] const __m512i levels = _mm512_load_si512(kLevels.data());
    for (int64_t at = first; at < last; at += kSteps, codes += 4 * kLanes) {
#pragma GCC unroll 2
      for (int i = 0; i < kRuns; i++) {
        const uint8_t* const own = codes + i * run;
        __builtin_prefetch(next, 0, 3);
        next += 4 * kLanes;
        if constexpr (kBits == 4) {
          const vu word = load_units(own);
          const auto units = [&](int vector) __attribute__((always_inline)) {
            const auto order = reinterpret_cast<__m512i>(word >> (4 * vector));
            return Units{reinterpret_cast<__m512bh>(_mm512_permutexvar_epi16(order, levels))};
          };
#pragma GCC unroll 2
          for (int pair = 0; pair < 2; pair++) {
            const Units halves[2] = {units(2 * pair), units(2 * pair + 1)};
            body(at + i * features + 2 * pair, i, halves);
          }
        } else {
          const Neighbours<bf16> halves[2] = {{value(own), value(own + kLanes)},
                                              {value(own + 2 * kLanes), value(own + 3 * kLanes)}};
          body(at + i * features, i, halves);
        }
      }
    }
  }

  /// A panel of them.
  void fill_codes(int64_t panel, int64_t first, int64_t last, bf16* out) const {
    each_code<1>(
        panel, first, last, [&](int64_t at, int, const auto(&halves)[2]) __attribute__((always_inline)) {
          for (int half = 0; half < 2; half++) halves[half].store(out + (at - first) * kPanel, half);
        });
  }
#endif

  /// `buffer` takes the scales of kPanel outputs, and their least values behind them. `sums`: those of a row from its first block on,
  /// of the next one `stride` further; read where there are least values.
  BlockScales block_scales(int64_t panel, int64_t block, float* buffer, const float* sums,
                           int64_t stride) const {
    const OutputScales own = scales_of(panel, block);
    for (int half = 0; half < 2; half++) {
      store(buffer + half * kLanes, own.scale[half]);
      if constexpr (kLeast) store(buffer + kPanel + half * kLanes, own.least[half]);
    }
    return {buffer, kLeast, kLeast ? sums + block : nullptr, stride};
  }

  int64_t block() const {
    return block_;
  }
  const uint8_t* codes_of(int64_t panel, int64_t first) const {
    return parts_.codes + panel * parts_.panel_codes + first * kPanel * kBits / 8;
  }

 private:
  static constexpr float level(int code) {
    if (is_nf4(kFormat)) return kNf4[static_cast<size_t>(code)];
    return static_cast<float>(kFormat == Format::q4_0 ? code - 8 : code);
  }
  /// Rounded to bf16, and twice, as a look-up goes by five bits.
  alignas(64) static constexpr std::array<uint16_t, 32> kLevels = [] {
    std::array<uint16_t, 32> levels{};
    for (int i = 0; i < 32; i++) {
      const auto bits = std::bit_cast<uint32_t>(level(i % 16));
      levels[static_cast<size_t>(i)] = static_cast<uint16_t>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
    }
    return levels;
  }();

  static auto values() {
    if constexpr (kBits == 4) {
      float levels[16];
      for (int i = 0; i < 16; i++) levels[i] = level(i);
      return Levels(levels);
    } else if constexpr (kFormat == Format::int8 || kFormat == Format::q6_k || kFormat == Format::q8_0) {
      return Signed{};
    } else {
      return E4m3{};
    }
  }

  static vf scaled(vf value, const OutputScales& by, int half) {
    // With the bits of two operations: the product, of a half with up to six bits and a code, has 21 at most.
    if constexpr (kLeast) return fma(value, by.scale[half], by.least[half]);
    return value * by.scale[half];
  }

  OutputScales scales_of(int64_t panel, int64_t block) const {
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
        s.scale[half] = nested(panel, block, half, levels_of(p + block * kPanel, half));
      } else {
        s.scale[half] = load(reinterpret_cast<const float*>(p) + block * kPanel + lane);
      }
    }
    return s;
  }

  /// First-level scales before the second level, of kLanes of kPanel codes.
  vf levels_of(const uint8_t* codes, int half) const {
#if defined(__AVX512F__)
    return nested_levels_(codes, half);
#else
    float level[kLanes];
    for (int i = 0; i < kLanes; i++) level[i] = parts_.shared[codes[half * kLanes + i]];
    return load(level);
#endif
  }

  /// level·scale + offset, where the blocks of the second level count the first-level ones of all rows.
  vf nested(int64_t panel, int64_t block, int half, vf level) const {
    const float* const levels = parts_.shared;
    const float* const scales = levels + kNestedLevels + 1;
    const int64_t row = k_ / 64;
    const int64_t first = (panel * kPanel + half * kLanes) * row + block;
    // Padding has no block of its own.
    const int64_t last = n_ * row - 1;
#if defined(__AVX512F__)
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
#else
    float scale_of[kLanes];
    for (int i = 0; i < kLanes; i++) scale_of[i] = scales[std::min(first + i * row, last) / kNestedBlock];
    const vf scale = load(scale_of);
#endif
    return level * scale + set1(levels[kNestedLevels]);
  }

  QuantizedParts parts_;
  int64_t n_, k_, block_;
#if defined(__AVX512F__)
  std::conditional_t<kFormat == Format::nf4_double, NestedLevels, NoLevels> nested_levels_;
#endif
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
