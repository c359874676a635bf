// Panels of W [V, H] for gemm_tile, in compute type C. Logits need kPanel neighbouring tokens over all of H;
// a packed weight of the same type is used in place. Sums over tokens need kPanel neighbouring columns over a
// range of tokens, transposed on the fly. A quantised W is dequantised for both; its view is that of valued().
#pragma once

#include <algorithm>
#include <type_traits>

#include "cpu/gemm/quantized.h"
#include "cpu/head/transpose.h"

namespace steptrain::cpu::STEPTRAIN_ISA {

/// bf16 activations are multiplied as bf16 where the processor can do so, else as floats.
#if defined(__AVX512BF16__) || defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)
template <typename X>
using HeadType = X;
#else
template <typename X>
using HeadType = float;
#endif

/// body(W{}, std::bool_constant<packed>{}).
template <typename F>
void by_layout(const TensorView& w, F body) {
  by_storage(w.dtype, [&](auto t) {
    if (w.packed) {
      body(t, std::true_type{});
    } else {
      body(t, std::false_type{});
    }
  });
}

/// Whether W is packed in the panels that C needs for logits.
template <typename C>
bool in_place(const TensorView& w) {
  return w.packed && w.format == Format::none && size_of(w.dtype) == sizeof(C);
}

/// Values of a quantised W that are bf16, although C is not.
template <typename C>
void round_values(const TensorView& w, C* values, int64_t n) {
  if constexpr (std::is_same_v<C, float>) {
    if (w.dtype == DType::f32) return;
    for (int64_t i = 0; i < n; i += kLanes) store_units(values + i, round_upper(load(values + i)));
  } else {
    (void)w, (void)values, (void)n;
  }
}

/// Prefetches what token_panel reads at v0 < V. Row-major, these are kPanel rows at once: too many streams
/// for the hardware prefetcher.
inline void prefetch_tokens(const TensorView& w, int64_t v0) {
  if (w.packed) return;
  const int64_t row = w[1] * size_of(w.dtype);
  const char* data = w.as<const char>() + v0 * row;
  for (int64_t i = 0; i < std::min(kPanel, w[0] - v0) * row; i += 64) __builtin_prefetch(data + i, 0, 2);
}

/// Prefetches what column_panel reads: short runs far apart.
inline void prefetch_columns(const TensorView& w, int64_t v0, int64_t n, int64_t h0) {
  if (w.format != Format::none) return;
  const int64_t size = size_of(w.dtype), columns = std::min(kPanel, w[1] - h0);
  const int64_t step = w.packed ? kPanel : 1;
  const int64_t stride =
      (w.dtype == DType::bf16 ? panel_stride<bf16>(w[1]) : panel_stride<float>(w[1])) * size;
  for (int64_t v = 0; v < n; v += step) {
    const char* run = w.packed ? w.as<const char>() + (v0 + v) / kPanel * stride + h0 * kPanel * size
                               : w.as<const char>() + ((v0 + v) * w[1] + h0) * size;
    for (int64_t i = 0; i < step * columns * size; i += 64) __builtin_prefetch(run + i, 0, 2);
  }
}

/// Tokens v0 … v0 + kPanel (v0 a multiple of it),
/// zeros past the vocabulary; `buffer` holds panel_stride<C>(H).
template <typename C>
const C* token_panel(const TensorView& w, int64_t v0, C* buffer) {
  const int64_t features = w[1];
  if (in_place<C>(w)) return w.as<C>() + v0 / kPanel * panel_stride<C>(features);
  if (w.format != Format::none) {
    dequantize_panel(w, v0 / kPanel, 0, features, buffer);
    round_values(w, buffer, panel_stride<C>(features));
    return buffer;
  }
  by_layout(w, [&](auto t, auto packed) {
    using W = decltype(t);
    if constexpr (packed) {
      convert_panel(w.as<const W>() + v0 / kPanel * panel_stride<W>(features), features, buffer);
    } else {
      pack_rows(w.as<const W>() + v0 * features, features, std::min(kPanel, w[0] - v0), features, buffer);
    }
  });
  return buffer;
}

/// Columns h0 … h0 + kPanel of tokens v0 … v0 + n (v0 a multiple of kPanel), zeros past H; `buffer`
/// holds panel_stride<C>(n), n rounded up to kPanel.
template <typename C>
void column_panel(const TensorView& w, int64_t v0, int64_t n, int64_t h0, C* buffer) {
  const int64_t features = w[1];
  if (w.format != Format::none) {
    transpose_quantized(w, v0, n, h0, buffer);
    round_values(w, buffer, panel_stride<C>(n));
    return;
  }
  by_layout(w, [&](auto t, auto packed) {
    using W = decltype(t);
    if constexpr (packed) {
      const W* from = w.as<const W>() + v0 / kPanel * panel_stride<W>(features);
      if constexpr (std::is_same_v<W, C>) {
        if (h0 + kPanel <= features) return transpose_columns(from, n, features, h0, buffer);
      }
      transpose_panel(from, n, features, h0, buffer);
    } else {
      pack_columns(w.as<const W>() + v0 * features + h0, features, std::min(kPanel, features - h0), n,
                   buffer);
    }
  });
}

}  // namespace steptrain::cpu::STEPTRAIN_ISA
