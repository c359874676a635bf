// Matrices of one chunk of the gated delta rule (delta_chunks.h), and their products on AMX or AVX-512-BF16: f32 in tiles, and
// factors of bf16, which are left ones in tile order or panels.
#pragma once

#if defined(__AVX512BF16__)

#include <cstring>

#include "cpu/gemm/panel.h"
#include "cpu/gemm/sums.h"
#include "cpu/gemm/tile_amx.h"

namespace steptrain::cpu::STEPTRAIN_ISA::delta {

#if defined(__AMX_BF16__)
constexpr int64_t kChunk = 64;
#else
constexpr int64_t kChunk = 32;
#endif
constexpr int64_t kSide = 32;  // of a tile of f32: rows, and columns
constexpr int64_t kTileSize = kSide * kSide;

/// A matrix of f32 in tiles, as products write them.
struct Tiles {
  float* data;
  int64_t across;  // tiles beside each other

  float* tile(int64_t down, int64_t right) const { return data + (down * across + right) * kTileSize; }
  /// kSide elements of row r, from column kSide·right on.
  float* row(int64_t r, int64_t right) const { return tile(r / kSide, right) + r % kSide * kSide; }
};

/// Memory of one member of the pool, handed out piece by piece. Without a base it counts alone.
struct Memory {
  char* base;
  int64_t used = 0;

  template <typename T>
  T* take(int64_t count) {
    T* const taken = base ? reinterpret_cast<T*>(base + used) : nullptr;
    used += (count * static_cast<int64_t>(sizeof(T)) + 63) / 64 * 64;
    return taken;
  }
  Tiles tiles(int64_t rows, int64_t columns) {
    return {take<float>((rows + kSide - 1) / kSide * kSide * columns), columns / kSide};
  }
};

/// Copies row r to its places in a left factor in tile order (cpu/gemm/tile_amx.h).
inline void order_row(const bf16* from, int64_t depth, bf16* out, int64_t r) {
  bf16* to = out + r / 16 * 16 * depth + r % 16 * kSide;
  for (int64_t i = 0; i < depth; i += kSide, to += 16 * kSide)
    _mm512_storeu_si512(to, _mm512_loadu_si512(from + i));
}

/// A factor as the sum of two bf16. `low` may be null.
struct Halves {
  bf16 *high, *low;
};

inline vf upper_float(__m512i pairs) {
  return _mm512_castsi512_ps(_mm512_and_si512(pairs, _mm512_set1_epi32(static_cast<int>(0xffff0000u))));
}
inline vf lower_float(__m512i pairs) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(pairs, 16));
}
/// Pairs (a_i, b_i).
inline __m512i paired(vf a, vf b) {
  alignas(64) static constexpr uint16_t order[32] = {0,  16, 1,  17, 2,  18, 3,  19, 4,  20, 5,
                                                     21, 6,  22, 7,  23, 8,  24, 9,  25, 10, 26,
                                                     11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
  return _mm512_permutexvar_epi16(_mm512_load_si512(order),
                                  reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(b, a)));
}

/// The panels (cpu/gemm/packed.h) of x, whose rows are the depth, row r scaled by scale[r]; rows but [from, count) are zero.
template <bool kLow>
void column_panels(const Tiles& x, int64_t from, int64_t count, int64_t depth, const float* scale,
                   const Halves& out) {
  const auto there = [&](int64_t d) { return d >= from && d < count; };
  for (int64_t right = 0; right < x.across; right++) {
    const int64_t panel = right * depth * kPanel;
    for (int64_t d = 0; d < depth; d += 2) {
      const vf first = set1(there(d) && scale ? scale[d] : 1.0f),
               second = set1(there(d + 1) && scale ? scale[d + 1] : 1.0f);
      for (int64_t c = 0; c < kSide; c += kLanes) {
        const vf a = there(d) ? load(x.row(d, right) + c) * first : zero();
        const vf b = there(d + 1) ? load(x.row(d + 1, right) + c) * second : zero();
        const __m512i high = paired(a, b);
        const int64_t at = panel + d * kPanel + 2 * c;
        _mm512_storeu_si512(out.high + at, high);
        if constexpr (kLow)
          _mm512_storeu_si512(out.low + at, paired(a - lower_float(high), b - upper_float(high)));
      }
    }
  }
}

/// The panels of xᵀ: the columns of x are the depth.
inline void row_panels(const Tiles& x, int64_t rows, int64_t depth, bf16* out) {
  for (int64_t down = 0; down * kSide < rows; down++)
    for (int64_t right = 0; right < x.across; right++)
      for (int64_t first = 0; first < kSide; first += kLanes) {
        vf block[kLanes];
        for (int64_t i = 0; i < kLanes; i++) {
          const float* const row = x.tile(down, right) + (first + i) * kSide;
          block[i] = reinterpret_cast<vf>(_mm512_cvtne2ps_pbh(load(row + kLanes), load(row)));
        }
        transpose(block);
        bf16* const to = out + down * depth * kPanel + right * kSide * kPanel + 2 * first;
        for (int64_t i = 0; i < kLanes; i++) store(reinterpret_cast<float*>(to + 2 * i * kPanel), block[i]);
      }
}

/// A left factor in tile order (cpu/gemm/tile_amx.h). `at(r, step)` are the 32 elements of row r from column 32·step on.
template <bool kLow, typename At>
void left_factor(int64_t from, int64_t rows, int64_t depth, const At& at, const Halves& out) {
  for (int64_t r = from; r < rows; r++)
    for (int64_t step = 0; step * kSide < depth; step++) {
      const float* const x = at(r, step);
      const vf a = load(x), b = load(x + kLanes);
      const auto high = reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(b, a));
      const int64_t place = r / 16 * 16 * depth + step * 16 * kSide + r % 16 * kSide;
      _mm512_storeu_si512(out.high + place, high);
      if constexpr (kLow) {
        const vf rest_a = a - load(out.high + place), rest_b = b - load(out.high + place + kLanes);
        _mm512_storeu_si512(out.low + place, reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(rest_b, rest_a)));
      }
    }
}

/// A left factor and the panels that it meets.
struct Factors {
  const bf16 *left, *panels;
};

#if defined(__AMX_BF16__)

constexpr int64_t kHeight = kSide;  // rows of a block of out

/// A block of out, with or without its lower half: all products before it is stored.
template <bool kLower, size_t N>
void multiply_tile(int64_t row, int64_t right, int64_t depth, const Factors (&factors)[N], float* c,
                   bool accumulate) {
  constexpr int64_t stride = kPanel * sizeof(float), lower = 16 * kPanel;
  if (accumulate) {
    _tile_loadd(0, c, stride);
    _tile_loadd(1, c + 16, stride);
    if constexpr (kLower) _tile_loadd(2, c + lower, stride);
    if constexpr (kLower) _tile_loadd(3, c + lower + 16, stride);
  } else {
    _tile_zero(0);
    _tile_zero(1);
    if constexpr (kLower) _tile_zero(2);
    if constexpr (kLower) _tile_zero(3);
  }
  for (const Factors& each : factors) {
    const bf16* x = each.left + row * depth;
    const bf16* panel = each.panels + right * depth * kPanel;
    for (int64_t i = 0; i < depth; i += kSide, x += 16 * kSide, panel += kSide * kPanel)
      amx_tile::add_step<kLower, 2>(x, kSide, 16 * depth, panel);
  }
  _tile_stored(0, c, stride);
  _tile_stored(1, c + 16, stride);
  if constexpr (kLower) _tile_stored(2, c + lower, stride);
  if constexpr (kLower) _tile_stored(3, c + lower + 16, stride);
}

inline void multiply_block(int64_t row, int64_t rows, int64_t right, int64_t depth, const auto& factors,
                           float* c, bool accumulate) {
  amx_tile::configure(amx_tile::kRows);
  if (rows > kSide / 2) {
    multiply_tile<true>(row, right, depth, factors, c, accumulate);
  } else {
    multiply_tile<false>(row, right, depth, factors, c, accumulate);
  }
}

#else

constexpr int64_t kHeight = 8;  // rows of a block of out: its sums are 16 registers

/// A block of out: all products before it is stored.
template <size_t N>
void multiply_block(int64_t row, int64_t /*rows*/, int64_t right, int64_t depth, const Factors (&factors)[N],
                    float* c, bool accumulate) {
  __m512 sums[kHeight][2];
#pragma GCC unroll 8
  for (int r = 0; r < kHeight; r++)
    for (int v = 0; v < 2; v++)
      sums[r][v] = accumulate ? _mm512_loadu_ps(c + r * kSide + v * kLanes) : _mm512_setzero_ps();
  for (const Factors& each : factors) {
    const bf16* x = each.left + row / 16 * 16 * depth + row % 16 * kSide;
    const bf16* panel = each.panels + right * depth * kPanel;
    for (int64_t i = 0; i < depth; i += kSide, x += 16 * kSide)
      for (int64_t pair = 0; pair < kSide; pair += 2, panel += 2 * kPanel) {
        const auto low = reinterpret_cast<__m512bh>(_mm512_loadu_si512(panel));
        const auto high = reinterpret_cast<__m512bh>(_mm512_loadu_si512(panel + kPanel));
#pragma GCC unroll 8
        for (int r = 0; r < kHeight; r++) {
          int32_t both;
          std::memcpy(&both, x + r * kSide + pair, sizeof both);
          const auto factor = reinterpret_cast<__m512bh>(_mm512_set1_epi32(both));
          sums[r][0] = _mm512_dpbf16_ps(sums[r][0], factor, low);
          sums[r][1] = _mm512_dpbf16_ps(sums[r][1], factor, high);
        }
      }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kHeight; r++)
    for (int v = 0; v < 2; v++) _mm512_storeu_ps(c + r * kSide + v * kLanes, sums[r][v]);
}

#endif

/// out rows [from, rows), in whole blocks, = or += the products of left factors [rows, depth] and panels of out's columns.
template <size_t N>
void product(int64_t from, int64_t rows, int64_t depth, const Factors (&factors)[N], const Tiles& out,
             bool accumulate) {
  for (int64_t r = from / kHeight * kHeight; r < rows; r += kHeight)
    for (int64_t right = 0; right < out.across; right++)
      multiply_block(r, rows - r, right, depth, factors, out.row(r, right), accumulate);
}

/// sum() of simd.h, by the same tree.
inline float lane_sum(vf x) {
  const __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1));
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

/// xᵀ as a left factor, from the panels of x's rows.
inline void across_of(const bf16* panels, int64_t rows, int64_t size, bf16* out) {
  alignas(64) static constexpr uint16_t even[32] = {0,  2,  4,  6,  8,  10, 12, 14, 16, 18, 20,
                                                    22, 24, 26, 28, 30, 32, 34, 36, 38, 40, 42,
                                                    44, 46, 48, 50, 52, 54, 56, 58, 60, 62};
  const __m512i first = _mm512_load_si512(even), second = _mm512_or_si512(first, _mm512_set1_epi16(1));
  const int64_t steps = (rows + kSide - 1) / kSide;
  for (int64_t step = 0; step < steps; step++)
    for (int64_t d = 0; d < size; d += 2) {
      const bf16* const from = panels + step * size * kPanel + d * kPanel;
      const __m512i a = _mm512_loadu_si512(from), b = _mm512_loadu_si512(from + kPanel);
      bf16* const to = out + (d / 16 * steps + step) * 16 * kSide + d % 16 * kSide;
      _mm512_storeu_si512(to, _mm512_permutex2var_epi16(a, first, b));
      _mm512_storeu_si512(to + kSide, _mm512_permutex2var_epi16(a, second, b));
    }
}

}  // namespace steptrain::cpu::STEPTRAIN_ISA::delta

#endif
