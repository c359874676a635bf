// Transposes part of a packed weight on the fly, for sums over tokens: panel(h - first, v) = W(v, h) for
// kPanel columns from `first`, all of them within H, where W and the panel have the same type. This is
// transpose_panel of gemm/panel.h for 512 bits, written out because it runs once per vocabulary tile and
// block of rows.
#pragma once

#include "cpu/gemm/panel.h"

namespace steptrain::cpu::STEPTRAIN_ISA {

#if defined(__AVX512F__)

/// `w` begins at the panel of token 0. `panel` holds whole vectors of tokens.
inline void transpose_columns(const float* w, int64_t tokens, int64_t features, int64_t first, float* panel) {
  for (int64_t v = 0; v < tokens; v += kLanes) {
    const float* from = w + v / kPanel * panel_stride<float>(features) + first * kPanel + v % kPanel;
    for (int64_t h = 0; h < kPanel; h += kLanes) {
      vf rows[kLanes];
#pragma GCC unroll 16
      for (int i = 0; i < kLanes; i++) rows[i] = load(from + (h + i) * kPanel);
      transpose(rows);
#pragma GCC unroll 16
      for (int i = 0; i < kLanes; i++) store(panel + (v + i) * kPanel + h, rows[i]);
    }
  }
}

/// A pair is two columns of a token in W, two tokens of a column in the panel: pairs of pairs are regrouped
/// in place, then transposed as blocks of 8 × 8.
inline void transpose_columns(const bf16* w, int64_t tokens, int64_t features, int64_t first, bf16* panel) {
  const __m512i regroup =
      _mm512_broadcast_i32x4(_mm_setr_epi8(0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15));
  for (int64_t v = 0; v < tokens; v += 16) {
    const bf16* from = w + v / kPanel * panel_stride<bf16>(features) + first * kPanel + v % kPanel * 2;
    for (int half = 0; half < 2; half++) {
      bf16* to = panel + v * kPanel + half * 32;
      __m512i a[8], b[8];
#pragma GCC unroll 8
      for (int i = 0; i < 8; i++)
        a[i] = _mm512_shuffle_epi8(_mm512_loadu_si512(from + (half * 8 + i) * 2 * kPanel), regroup);
#pragma GCC unroll 4
      for (int i = 0; i < 8; i += 2) {
        b[i] = _mm512_unpacklo_epi64(a[i], a[i + 1]);
        b[i + 1] = _mm512_unpackhi_epi64(a[i], a[i + 1]);
      }
#pragma GCC unroll 2
      for (int odd = 0; odd < 2; odd++) {
        const __m512i c0 = _mm512_shuffle_i64x2(b[odd], b[odd + 2], 0x88);
        const __m512i c2 = _mm512_shuffle_i64x2(b[odd], b[odd + 2], 0xdd);
        const __m512i d0 = _mm512_shuffle_i64x2(b[odd + 4], b[odd + 6], 0x88);
        const __m512i d2 = _mm512_shuffle_i64x2(b[odd + 4], b[odd + 6], 0xdd);
        _mm512_storeu_si512(to + odd * 64, _mm512_shuffle_i64x2(c0, d0, 0x88));
        _mm512_storeu_si512(to + (odd + 2) * 64, _mm512_shuffle_i64x2(c2, d2, 0x88));
        _mm512_storeu_si512(to + (odd + 4) * 64, _mm512_shuffle_i64x2(c0, d0, 0xdd));
        _mm512_storeu_si512(to + (odd + 6) * 64, _mm512_shuffle_i64x2(c2, d2, 0xdd));
      }
    }
  }
}

#else

template <typename C>
void transpose_columns(const C* w, int64_t tokens, int64_t features, int64_t first, C* panel) {
  transpose_panel(w, tokens, features, first, panel);
}

#endif

}  // namespace steptrain::cpu::STEPTRAIN_ISA
