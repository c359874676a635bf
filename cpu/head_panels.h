// The two right-hand sides that the head needs of W [V, H], as panels for gemm_tile in compute type C: for
// logits kPanel neighbouring tokens over all of H (a packed weight of the same type is used in place), and
// for sums over tokens kPanel neighbouring columns over a range of tokens, transposed on the fly.
#pragma once

#include <algorithm>
#include <type_traits>

#include "cpu/packed.h"

namespace steptrain::cpu::STEPTRAIN_ISA {

/// bf16 activations are multiplied as bf16 where the processor can, else as floats.
#if defined(__AVX512BF16__)
template <typename X>
using HeadType = X;
#else
template <typename X>
using HeadType = float;
#endif

template <typename W, bool kPacked>
float weight_at(const W* data, int64_t v, int64_t k, int64_t features) {
  return to_float(data[kPacked ? packed_index<W>(v, k, features) : v * features + k]);
}

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

/// Tokens v0 … v0 + kPanel (v0 a multiple of it), zeros past the vocabulary; `room` holds panel_stride<C>(H).
template <typename C>
const C* token_panel(const TensorView& w, int64_t v0, C* room) {
  const int64_t features = w[1], tokens = std::min(kPanel, w[0] - v0);
  if (w.packed && size_of(w.dtype) == sizeof(C)) return w.as<C>() + v0 / kPanel * panel_stride<C>(features);
  by_layout(w, [&](auto t, auto packed) {
    using W = decltype(t);
    for (int64_t k = 0; k < packed_k<C>(features); k++) {
      C* to = room + k / kGroup<C> * kPanel * kGroup<C> + k % kGroup<C>;
      for (int64_t j = 0; j < kPanel; j++) {
        const bool inside = j < tokens && k < features;
        to[j * kGroup<C>] =
            from_float<C>(inside ? weight_at<W, packed>(w.as<W>(), v0 + j, k, features) : 0.0f);
      }
    }
  });
  return room;
}

/// Columns h0 … h0 + kPanel of tokens v0 … v0 + n, zeros past H; `room` holds panel_stride<C>(n).
template <typename C>
void column_panel(const TensorView& w, int64_t v0, int64_t n, int64_t h0, C* room) {
  const int64_t features = w[1], columns = std::min(kPanel, features - h0);
  by_layout(w, [&](auto t, auto packed) {
    using W = decltype(t);
    for (int64_t v = 0; v < packed_k<C>(n); v++) {
      C* to = room + v / kGroup<C> * kPanel * kGroup<C> + v % kGroup<C>;
      for (int64_t j = 0; j < kPanel; j++) {
        const bool inside = v < n && j < columns;
        to[j * kGroup<C>] =
            from_float<C>(inside ? weight_at<W, packed>(w.as<W>(), v0 + v, h0 + j, features) : 0.0f);
      }
    }
  });
}

}  // namespace steptrain::cpu::STEPTRAIN_ISA
