// The bf16 register tile on AMX: C of up to 32 rows by one panel lies in four tile registers of 16 × 16 floats, a step
// takes 32 neighbouring k. Panels need no other layout: 16 pairs of k of 16 outputs are a right-hand tile as they lie.
//
// tdpbf16ps sums the even and the odd k of a step apart, from zero, adds both and then adds them to C (denormals are zero).
// Bits therefore depend on where steps begin: at multiples of 32 of a sum, in every kernel.
#pragma once

#if defined(__AMX_BF16__)

#include <immintrin.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "cpu/gemm/packed.h"

namespace steptrain::cpu::STEPTRAIN_ISA::amx_tile {

constexpr int kTile = 16;         // rows of a register, and columns of 4 bytes
constexpr int kRows = 2 * kTile;  // of C
constexpr int64_t kDepth = 32;    // k of a step

/// Registers: 0 and 1 are C's upper rows, left and right; 2 and 3 its lower ones; 4 and 5 X's upper and lower rows; 6 and 7
/// the panel's left and right columns. Loading a configuration also clears them, so it is done only for another height.
inline void configure(int rows) {
  static thread_local int configured = 0;
  if (configured == rows) return;
  struct alignas(64) {
    uint8_t palette = 1, start = 0, reserved[14] = {};
    uint16_t row_bytes[16] = {};
    uint8_t rows[16] = {};
  } shape;
  const auto set = [&](int tile, int height) {
    if (height <= 0) return;  // stays unused
    shape.rows[tile] = static_cast<uint8_t>(height);
    shape.row_bytes[tile] = 64;
  };
  const int upper = std::min(rows, kTile), lower = rows - upper;
  for (const int tile : {0, 1, 4}) set(tile, upper);
  for (const int tile : {2, 3, 5}) set(tile, lower);
  for (const int tile : {6, 7}) set(tile, kTile);
  // _tile_loadconfig of GCC 12 tells the compiler of the first 8 bytes only.
  __asm__ volatile("ldtilecfg %0" : : "m"(shape));
  configured = rows;
}

/// One step of k; strides in bytes.
template <bool kLower, int kVectors>
inline __attribute__((always_inline)) void add_step(const bf16* x, int64_t stride, const bf16* panel) {
  constexpr int64_t step = kPanel * 2 * sizeof(bf16);
  _tile_loadd(6, panel, step);
  _tile_loadd(4, x, stride);
  _tile_dpbf16ps(0, 4, 6);
  if constexpr (kVectors == 2) {
    _tile_loadd(7, panel + 2 * kTile, step);
    _tile_dpbf16ps(1, 4, 7);
  }
  if constexpr (kLower) {
    _tile_loadd(5, reinterpret_cast<const char*>(x) + kTile * stride, stride);
    _tile_dpbf16ps(2, 5, 6);
    if constexpr (kVectors == 2) _tile_dpbf16ps(3, 5, 7);
  }
}

template <bool kLower, int kVectors, bool kPrefetch>
void run(int rows, const bf16* x, int64_t stride, const bf16* panel, int64_t k, float* c, bool accumulate,
         int64_t ahead) {
  constexpr int64_t row = kPanel * sizeof(float);
  float* const lower = c + kTile * kPanel;
  if (accumulate) {
    _tile_loadd(0, c, row);
    if constexpr (kVectors == 2) _tile_loadd(1, c + kTile, row);
    if constexpr (kLower) _tile_loadd(2, lower, row);
    if constexpr (kLower && kVectors == 2) _tile_loadd(3, lower + kTile, row);
  } else {
    _tile_zero(0);
    if constexpr (kVectors == 2) _tile_zero(1);
    if constexpr (kLower) _tile_zero(2);
    if constexpr (kLower && kVectors == 2) _tile_zero(3);
  }
  const int64_t whole = k / kDepth * kDepth, rest = k - whole;
  for (int64_t i = 0; i < whole; i += kDepth) {
    if constexpr (kPrefetch) {
      const bf16* const later = panel + i * kPanel + ahead;
#pragma GCC unroll 32
      for (int line = 0; line < 32; line++) __builtin_prefetch(later + line * 32, 0, 2);
    }
    add_step<kLower, kVectors>(x + i, stride * static_cast<int64_t>(sizeof(bf16)), panel + i * kPanel);
  }
  if (rest > 0) {
    // A whole step of copies with zeros behind: what follows in memory may be NaN, or not mapped.
    alignas(64) bf16 left[kRows * kDepth], right[kDepth * kPanel];
    std::memset(static_cast<void*>(left), 0, static_cast<size_t>(rows) * kDepth * sizeof(bf16));
    for (int r = 0; r < rows; r++)
      std::memcpy(left + r * kDepth, x + whole + r * stride, static_cast<size_t>(rest) * sizeof(bf16));
    const int64_t filled = packed_k<bf16>(rest) * kPanel;
    std::memcpy(right, panel + whole * kPanel, static_cast<size_t>(filled) * sizeof(bf16));
    std::memset(static_cast<void*>(right + filled), 0,
                sizeof right - static_cast<size_t>(filled) * sizeof(bf16));
    add_step<kLower, kVectors>(left, kDepth * sizeof(bf16), right);
  }
  _tile_stored(0, c, row);
  if constexpr (kVectors == 2) _tile_stored(1, c + kTile, row);
  if constexpr (kLower) _tile_stored(2, lower, row);
  if constexpr (kLower && kVectors == 2) _tile_stored(3, lower + kTile, row);
}

/// gemm_tile (cpu/gemm/tile.h) for 1 ≤ rows ≤ kRows. kPrefetch: every step asks for as much of the panel as it reads.
template <int kVectors, bool kPrefetch>
void multiply(int rows, const bf16* x, int64_t stride, const bf16* panel, int64_t k, float* c,
              bool accumulate, int64_t ahead) {
  configure(rows);
  if (rows > kTile) {
    run<true, kVectors, kPrefetch>(rows, x, stride, panel, k, c, accumulate, ahead);
  } else {
    run<false, kVectors, kPrefetch>(rows, x, stride, panel, k, c, accumulate, ahead);
  }
}

}  // namespace steptrain::cpu::STEPTRAIN_ISA::amx_tile

#endif
