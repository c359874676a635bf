// What becomes of the sums of a register tile (cpu/gemm/tile.h): they stay in c, or go from registers to where they belong.
// A `put` of the latter is called for each row of the tile, put(r, low, high), with its kPanel sums, or put.part(r, j, sum, n…)
// for one vector from column j on, of its first n.
#pragma once

#include <cstdint>
#include <type_traits>

#include "cpu/gemm/packed.h"

namespace steptrain::cpu::STEPTRAIN_ISA {

/// Floats from one row of a C tile to the next.
constexpr int64_t kTileStride = kPanel;

/// They stay in c.
struct Kept {};

/// Sums of a tile that are in c already, as a function of what becomes of them.
struct InMemory {
  int rows;
  const float* c;

  template <typename Put>
  void operator()(const Put& put) const {
    if constexpr (!std::is_same_v<Put, Kept>) {
      for (int r = 0; r < rows; r++) put(r, load(c + r * kTileStride), load(c + r * kTileStride + kLanes));
    }
  }
};

/// What is done with a tile that stays in c.
struct Keep {
  void operator()(int64_t, int, const auto& sums) const { sums(Kept{}); }
};

/// The kPanel outputs of a row, in one instruction where there is one: half of the stores.
inline void store_row(float* out, vf low, vf high) {
  store(out, low);
  store(out + kLanes, high);
}
inline void store_row(bf16* out, vf low, vf high) {
#if defined(__AVX512BF16__)
  _mm512_storeu_si512(out, reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(high, low)));
#else
  store(out, low);
  store(out + kLanes, high);
#endif
}

/// out = sums + bias, then + residual, which is added to what is stored without one. Both may be null; rows of out and of
/// residual are `stride` apart.
template <typename T>
struct Stored {
  T* out;
  int64_t stride;
  const float* bias = nullptr;
  const T* residual = nullptr;

  void operator()(int64_t r, vf low, vf high) const {
    if (bias) low = low + load(bias), high = high + load(bias + kLanes);
    T* const to = out + r * stride;
    store_row(to, low, high);
    if (!residual) return;
    const T* const from = residual + r * stride;
    store_row(to, load(to) + load(from), load(to + kLanes) + load(from + kLanes));
  }
  void part(int64_t r, int64_t j, vf sum, auto... n) const {
    T* const to = out + r * stride + j;
    store(to, bias ? sum + load(bias + j) : sum, n...);
    if (residual) store(to, load(to, n...) + load(residual + r * stride + j, n...), n...);
  }
};

/// out = or, with `accumulate`, += sums.
template <typename T>
struct Added {
  T* out;
  int64_t stride;
  bool accumulate;

  void operator()(int64_t r, vf low, vf high) const {
    T* const to = out + r * stride;
    if (accumulate) low = load(to) + low, high = load(to + kLanes) + high;
    store_row(to, low, high);
  }
  void part(int64_t r, int64_t j, vf sum, auto... n) const {
    T* const to = out + r * stride + j;
    store(to, accumulate ? load(to, n...) + sum : sum, n...);
  }
};

}  // namespace steptrain::cpu::STEPTRAIN_ISA
