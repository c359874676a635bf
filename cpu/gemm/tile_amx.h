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
#include "cpu/gemm/sums.h"

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

/// Rows of X, as tiles read them: distances in elements from a row to the next of a group of kTile rows, from a group to the
/// next, and from a step of k to the next. Rows in memory one after another lie far apart, a step's in as many sets of the L1
/// cache as there are; in tile order a tile is 1 KiB that the processor reads ahead of.
struct Rows {
  const bf16* data;
  int64_t stride, group, step;
  bool ordered;
};
inline Rows row_major(const bf16* x, int64_t stride) {
  return {x, stride, kTile * stride, kDepth, false};
}
/// Of `rows` × k in tile order.
inline int64_t ordered_size(int64_t rows, int64_t k) {
  return (rows + kTile - 1) / kTile * kTile * ((k + kDepth - 1) / kDepth * kDepth);
}
/// From row t on, a multiple of kTile.
inline Rows tile_order(const bf16* x, int64_t k, int64_t t) {
  const int64_t group = ordered_size(kTile, k);
  return {x + t / kTile * group, kDepth, group, kTile * kDepth, true};
}
/// Copies row t to its places in x, whose last step is padded with zeros.
inline void order_row(const bf16* from, int64_t k, bf16* x, int64_t t) {
  bf16* out = x + t / kTile * ordered_size(kTile, k) + t % kTile * kDepth;
  for (int64_t i = 0; i < k; i += kDepth, out += kTile * kDepth) {
    const __mmask32 mask = k - i >= kDepth ? ~__mmask32{0} : (__mmask32{1} << (k - i)) - 1;
    _mm512_store_si512(out, _mm512_maskz_loadu_epi16(mask, from + i));
  }
}

/// One step of k.
template <bool kLower, int kVectors>
inline __attribute__((always_inline)) void add_step(const bf16* x, int64_t row, int64_t group,
                                                    const bf16* panel) {
  constexpr int64_t step = kPanel * 2 * sizeof(bf16);
  const int64_t stride = row * static_cast<int64_t>(sizeof(bf16));
  _tile_loadd(6, panel, step);
  _tile_loadd(4, x, stride);
  _tile_dpbf16ps(0, 4, 6);
  if constexpr (kVectors == 2) {
    _tile_loadd(7, panel + 2 * kTile, step);
    _tile_dpbf16ps(1, 4, 7);
  }
  if constexpr (kLower) {
    _tile_loadd(5, x + group, stride);
    _tile_dpbf16ps(2, 5, 6);
    if constexpr (kVectors == 2) _tile_dpbf16ps(3, 5, 7);
  }
}

/// Every step asks for kLines cache lines at `later`, which moves on by as many.
template <bool kLower, int kVectors, int kLines>
void run(int rows, const Rows& x, const bf16* panel, int64_t k, float* c, bool accumulate,
         const bf16* later) {
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
  const bf16* from = x.data;
  for (int64_t i = 0; i < whole; i += kDepth, from += x.step) {
    if constexpr (kLines > 0) {
#pragma GCC unroll 32
      for (int line = 0; line < kLines; line++) __builtin_prefetch(later + line * 32, 0, 2);
      later += kLines * 32;
    }
    add_step<kLower, kVectors>(from, x.stride, x.group, panel + i * kPanel);
  }
  if (rest > 0) {
    // A whole step of copies with zeros behind: what follows in memory may be NaN, or not mapped.
    alignas(64) bf16 left[kRows * kDepth], right[kDepth * kPanel];
    std::memset(static_cast<void*>(left), 0, static_cast<size_t>(rows) * kDepth * sizeof(bf16));
    for (int r = 0; r < rows; r++)
      std::memcpy(left + r * kDepth, from + r / kTile * x.group + r % kTile * x.stride,
                  static_cast<size_t>(rest) * sizeof(bf16));
    const int64_t filled = packed_k<bf16>(rest) * kPanel;
    std::memcpy(right, panel + whole * kPanel, static_cast<size_t>(filled) * sizeof(bf16));
    std::memset(static_cast<void*>(right + filled), 0,
                sizeof right - static_cast<size_t>(filled) * sizeof(bf16));
    add_step<kLower, kVectors>(left, kDepth, kTile * kDepth, right);
  }
  _tile_stored(0, c, row);
  if constexpr (kVectors == 2) _tile_stored(1, c + kTile, row);
  if constexpr (kLower) _tile_stored(2, lower, row);
  if constexpr (kLower && kVectors == 2) _tile_stored(3, lower + kTile, row);
}

/// gemm_tile (cpu/gemm/tile.h) for 1 ≤ rows ≤ kRows. In tile order whole groups of C are written.
template <int kVectors, int kLines = 0>
void multiply(int rows, const Rows& x, const bf16* panel, int64_t k, float* c, bool accumulate,
              const bf16* later = nullptr) {
  // Tiles of rows in tile order are whole in memory: one configuration for all.
  configure(x.ordered ? kRows : rows);
  if (rows > kTile) {
    run<true, kVectors, kLines>(rows, x, panel, k, c, accumulate, later);
  } else {
    run<false, kVectors, kLines>(rows, x, panel, k, c, accumulate, later);
  }
}

/// gemm_block (cpu/gemm/block.h). Where panels come from memory and there are several tiles, K goes in parts of 256, which stay
/// in the L1 cache for all tiles; what comes later the first two ask for, a half each.
template <typename Done>
void block(int64_t rows, int height, const Rows& x, const bf16* panel, int64_t k, float* c, const bf16* end,
           bool accumulate, const Done& done) {
  constexpr int64_t depth = 256, step = kPanel * kDepth, ahead = 24 * step;
  constexpr int kLines = 32;  // of a step
  const bool single = rows <= height;
  const int64_t part = end && !single ? depth : k;
  for (int64_t first = 0; first < k; first += part) {
    const int64_t count = std::min(part, k - first);
    const bf16* const from = panel + first * kPanel;
    const bf16* const later = from + ahead;
    const bool asks = end && later < end;
    for (int64_t r = 0; r < rows; r += height) {
      const int n = static_cast<int>(std::min<int64_t>(height, rows - r));
      const Rows left{x.data + r / kTile * x.group + r % kTile * x.stride + first / kDepth * x.step, x.stride,
                      x.group, x.step, x.ordered};
      float* const sums = c + r * kPanel;
      const bool goes_on = accumulate || first > 0;
      if (!asks || r >= 2 * height) {
        multiply<2>(n, left, from, count, sums, goes_on);
      } else if (single) {
        multiply<2, kLines>(n, left, from, count, sums, goes_on, later);
      } else {
        multiply<2, kLines / 2>(n, left, from, count, sums, goes_on,
                                later + (r > 0 ? count * kPanel / 2 : 0));
      }
      if (first + count == k) done(r, n, InMemory{n, sums});
    }
  }
}

/// multiply() of a panel that `decode` makes meanwhile: decode(place) calls place(first) for every kDepth of k, a multiple of
/// it, and fills what that returns. The steps lag behind, so that what they read has left the processor's write buffer.
template <typename Decode>
void multiply_decoded(int rows, const bf16* x, int64_t stride, int64_t k, float* c, const Decode& decode) {
  constexpr int64_t kSlots = 4, kLag = 2, kStep = kDepth * kPanel, row = kPanel * sizeof(float);
  alignas(64) bf16 ring[kSlots * kStep];
  const auto slot = [&](int64_t first) { return ring + first / kDepth % kSlots * kStep; };
  configure(rows);
  _tile_zero(0);
  _tile_zero(1);
  const auto add = [&](int64_t first) { add_step<false, 2>(x + first, stride, 0, slot(first)); };
  decode([&](int64_t first) {
    if (first >= kLag * kDepth) add(first - kLag * kDepth);
    return slot(first);
  });
  for (int64_t first = std::max<int64_t>(0, k - kLag * kDepth); first < k; first += kDepth) add(first);
  _tile_stored(0, c, row);
  _tile_stored(1, c + kTile, row);
}

}  // namespace steptrain::cpu::STEPTRAIN_ISA::amx_tile

#endif
