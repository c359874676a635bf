// A block of rows by one panel: several register tiles, of nearly equal height.
//
// Where the panel comes from memory (few rows: a step of generation), one pass of tiles over all of K waits for memory
// in the first tile and leaves it idle in the others. So K goes in parts that stay in the L1 cache, every part through all
// tiles, and the first tiles ask for what comes later in the stream of panels. The bits are those of one pass: a tile's
// sums continue.
#pragma once

#include <algorithm>
#include <type_traits>

#include "cpu/gemm/panel.h"
#include "cpu/gemm/tile.h"

namespace steptrain::cpu::STEPTRAIN_ISA {

/// Whether products of bf16 are made by multiply-adds of f32, of what is widened first.
#if defined(__AVX512BF16__) || defined(STEPTRAIN_NEON)
template <typename T>
constexpr bool kWidens = false;
#else
template <typename T>
constexpr bool kWidens = sizeof(T) == 2;
#endif

/// What factors are multiplied as that are packed for one product alone: widened then, once.
template <typename T>
using Widened = std::conditional_t<kWidens<T>, float, T>;

/// Whether rows may be copied first, into tile order or to f32.
template <typename T>
constexpr bool kOrders = kWidens<T>;
#if defined(__AMX_BF16__)
template <>
constexpr bool kOrders<bf16> = true;
#endif

/// Most rows of a tile that are read in place where they fall into one set of the L1 cache, of 8 to 12 lines; 0: they are
/// copied first. A tile of AMX has 32 rows. On ARM a set has four lines.
#if defined(STEPTRAIN_NEON)
template <typename T>
constexpr int kAliasedRows = 0;
#else
template <typename T>
constexpr int kAliasedRows = 8;
#endif
#if defined(__AMX_BF16__)
template <>
constexpr int kAliasedRows<bf16> = 0;
#endif

/// Whether rows that lie `stride` elements apart fall into one set of an L1 cache with 4 KiB in each way.
template <typename T>
bool aliases(int64_t stride) {
  return stride * int64_t{sizeof(T)} % 4096 == 0;
}

/// The height of the tiles of a block of rows that lie `stride` elements apart: as few tiles as possible, nearly equal. With
/// AMX several are whole ones, as rows in tile order lie.
template <typename T>
int tile_height(int64_t rows, int64_t stride) {
  const int most =
      kAliasedRows<T> && aliases<T>(stride) ? std::min(kTileRows<T>, kAliasedRows<T>) : kTileRows<T>;
  const int64_t tiles = (rows + most - 1) / most;
  if (kOrders<T> && !kWidens<T> && tiles > 1) return kTileRows<T>;
  return static_cast<int>(tiles ? (rows + tiles - 1) / tiles : 1);
}

/// Most rows of one block, for buffers of C.
template <typename T>
constexpr int64_t kBlockRows = 10 * kTileRows<T>;

/// Elements from one row of a copy to the next: whole vectors, and never a multiple of 2 KiB, at which the
/// rows of a tile would fall into the same few sets of the L1 cache.
template <typename T>
int64_t row_stride(int64_t depth) {
  constexpr int64_t line = 64 / sizeof(T);
  const int64_t stride = (depth + line - 1) / line * line;
  return stride % (32 * line) == 0 ? stride + line : stride;
}

/// body(j) for the whole vectors of n neighbouring elements, then body(j, rest) for the remaining ones: loads
/// and stores of simd.h take `rest` as their last argument.
template <typename Body>
void each_vector(int64_t n, const Body& body) {
  int64_t j = 0;
  for (; j + kLanes <= n; j += kLanes) body(j);
  if (j < n) body(j, static_cast<int>(n - j));
}

/// body(j) for the whole vectors of `columns` outputs of a panel, which are seldom fewer than all; else as each_vector.
template <typename Body>
void each_column(int64_t columns, const Body& body) {
  if (columns < kPanel) return each_vector(columns, body);
#pragma GCC unroll 2
  for (int64_t j = 0; j < kPanel; j += kLanes) body(j);
}

/// Puts the first `columns` sums of each row: all from registers, fewer from c.
template <typename Sums, typename Put>
void put_columns(int64_t columns, int rows, const float* c, const Sums& sums, const Put& put) {
  if (columns == kPanel) return sums(put);
  sums(Kept{});
  for (int r = 0; r < rows; r++) {
    each_vector(columns, [&](int64_t j, auto... n) { put.part(r, j, load(c + r * kTileStride + j), n...); });
  }
}

/// body(t, rows) for the tiles of rows [first, last) that lie `stride` elements apart.
template <typename T, typename Body>
void each_tile(int64_t first, int64_t last, int64_t stride, const Body& body) {
  const int height = tile_height<T>(last - first, stride);
  for (int64_t t = first; t < last; t += height) {
    body(t, static_cast<int>(std::min<int64_t>(height, last - t)));
  }
}

/// Rows of the left side from one on, which begins a tile.
template <typename T>
struct Left {
  const T* data;
  int64_t stride;
};
template <typename T>
requires kWidens<T>
struct Left<T> {
  const T* data;
  int64_t stride;
  const float* wide = nullptr;  // if not null, the same rows, `stride` apart

  static int64_t ordered_size(int64_t rows, int64_t k) { return 2 * rows * row_stride<float>(k); }
  static Left ordered(const T* x, int64_t k, int64_t t) {
    const int64_t stride = row_stride<float>(k);
    return {nullptr, stride, reinterpret_cast<const float*>(x) + t * stride};
  }
  static void order_row(const T* from, int64_t k, T* x, int64_t t) {
    float* const to = reinterpret_cast<float*>(x) + t * row_stride<float>(k);
    each_vector(k, [&](int64_t i, auto... n) { store(to + i, load(from + i, n...), n...); });
  }
};
#if defined(__AMX_BF16__)
template <>
struct Left<bf16> : amx_tile::Rows {
  Left(const bf16* x, int64_t stride) : Rows(amx_tile::row_major(x, stride)) {}
  explicit Left(const Rows& rows) : Rows(rows) {}

  static int64_t ordered_size(int64_t rows, int64_t k) { return amx_tile::ordered_size(rows, k); }
  static Left ordered(const bf16* x, int64_t k, int64_t t) { return Left(amx_tile::tile_order(x, k, t)); }
  static void order_row(const bf16* from, int64_t k, bf16* x, int64_t t) {
    amx_tile::order_row(from, k, x, t);
  }
};
#endif

/// k steps of a panel of bf16 as one of f32; an odd k is followed by a step of zeros.
inline void widen_panel(const bf16* panel, int64_t k, float* out) {
  for (int64_t i = 0; i < k; i += 2) {
#pragma GCC unroll 2
    for (int64_t n = 0; n < kPanel; n += kLanes) {
      const vu pairs = load_units(panel + i * kPanel + 2 * n);
      store_units(out + i * kPanel + n, pairs << 16);
      store_units(out + (i + 1) * kPanel + n, pairs & 0xffff0000u);
    }
  }
}

/// gemm_block of rows that were widened: K goes in parts, each of which is widened into the L1 cache for all tiles. A tile of
/// bf16 would widen the panel for its few rows alone, and elements of x for every panel anew. Factors and the order of
/// sums are the same, and so are the bits.
template <typename T, typename Done>
void widened_block(int64_t rows, int height, const Left<T>& x, const T* panel, int64_t k, float* c,
                   const T* end, bool accumulate, const Done& done) {
  constexpr int64_t depth = 128;
  alignas(64) float part[depth * kPanel];
  for (int64_t first = 0; first < k; first += depth) {
    const int64_t count = std::min(depth, k - first);
    const T* const from = panel + first * kPanel;
    const T* const next = from + depth * kPanel;
    widen_panel(from, count, part);
    for (int64_t r = 0; r < rows; r += height) {
      const int n = static_cast<int>(std::min<int64_t>(height, rows - r));
      const float* const left = x.wide + r * x.stride + first;
      float* const sums = c + r * kTileStride;
      const bool continues = accumulate || first > 0;
      if (r == 0 && end && next < end) {
        // The first tile asks for the next part and the one after, which the next asks for again: it is there.
        gemm_tile<float, 2, kPanel>(n, left, x.stride, part, count, sums, continues, next);
      } else {
        gemm_tile<float>(n, left, x.stride, part, count, sums, continues);
      }
      if (first + count == k) done(r, n, InMemory{n, sums});
    }
  }
}

/// c[rows][kTileStride] = or, with `accumulate`, += x[rows, k]·panelᵀ for any number of rows. `end`: where the panels
/// end that the caller reads one after another, this one first, if they come from memory. done(r, n, sums): the rows [r, r + n)
/// of c, a tile, are complete by sums(Kept{}), or sums(put) puts them elsewhere. To store them then is to wait for their lines
/// while the next tile is multiplied.
template <typename T, typename Done = Keep>
void gemm_block(int64_t rows, const Left<T>& x, const T* panel, int64_t k, float* c, const T* end,
                bool accumulate, const Done& done = {}) {
  const int height = tile_height<T>(rows, x.stride);
  // No part of the depth would write the sums.
  if (k == 0) {
    if (!accumulate) zero_sums(rows, c);
    return each_tile<T>(0, rows, x.stride, [&](int64_t r, int n) {
      done(r, n, InMemory{n, c + r * kTileStride});
    });
  }
  if constexpr (kWidens<T>)
    if (x.wide) return widened_block(rows, height, x, panel, k, c, end, accumulate, done);
#if defined(__AMX_BF16__)
  if constexpr (sizeof(T) == 2)
    return amx_tile::block(rows, height, x, panel, k, c, end, accumulate, done);
  else
#endif
  {
    // 128 steps are 16 KiB of a panel with AVX-512.
    constexpr int64_t depth = 128 * kGroup<T>, step = kPanel * kGroup<T>, line = 64 / sizeof(T);
    // That a step reads: as many tiles ask for one each.
    constexpr int64_t lines = (step + line - 1) / line;
    constexpr int64_t ahead = 192 * step;
    static_assert(depth % kSteps<T> == 0);
    // Loads of a single row of tiles run ahead by themselves.
    const bool streams = end && rows > height;
    const int64_t part = streams ? depth : k;
    for (int64_t first = 0; first < k; first += part) {
      const int64_t count = std::min(part, k - first);
      const T* const from = panel + first * kPanel;
      int64_t tile = 0;
      for (int64_t r = 0; r < rows; r += height, tile++) {
        const int n = static_cast<int>(std::min<int64_t>(height, rows - r));
        const T* const left = x.data + r * x.stride + first;
        float* const own = c + r * kTileStride;
        const bool continues = accumulate || first > 0, completes = first + count == k;
        const auto multiply = [&](const auto& put) {
          gemm_tile<T>(n, left, x.stride, from, count, own, continues, nullptr, put);
        };
        if (streams && tile < lines && from + ahead < end) {
          gemm_tile<T, 2, kPanel>(n, left, x.stride, from, count, own, continues, from + ahead + tile * line);
          if (completes) done(r, n, InMemory{n, own});
        } else if (completes) {
          done(r, n, multiply);
        } else {
          multiply(Kept{});
        }
      }
    }
  }
}

/// body(t, rows) for blocks of at most kBlockRows<T> of rows [first, last) that lie `stride` elements apart, nearly equal, each
/// but the last in whole tiles.
template <typename T, typename Body>
void each_block(int64_t first, int64_t last, int64_t stride, const Body& body) {
  const int64_t height = tile_height<T>(last - first, stride), tiles = (last - first + height - 1) / height;
  const int64_t most = kBlockRows<T> / height, blocks = std::max<int64_t>((tiles + most - 1) / most, 1);
  const int64_t rows = (tiles + blocks - 1) / blocks * height;
  for (int64_t t = first; t < last; t += rows) body(t, std::min(rows, last - t));
}

}  // namespace steptrain::cpu::STEPTRAIN_ISA
