// What the head's kernels share: how [R, V] is divided into row blocks, vocabulary splits and tiles, and the
// logits of one tile. The products of a panel are contiguous: logits[panel][row][kPanel].
#pragma once

#include <algorithm>
#include <atomic>
#include <cmath>
#include <vector>

#include "cpu/elementwise.h"
#include "cpu/gemm/block.h"
#include "cpu/head/panels.h"
#include "cpu/runtime/stream.h"

namespace steptrain::cpu::STEPTRAIN_ISA {

/// Fixed by the vocabulary alone, so that a row's value depends neither on its batch nor on the thread count.
constexpr int64_t kTileTokens = 512;
constexpr int64_t kSplitTokens = 8192;
static_assert(kTileTokens % kPanel == 0 && kSplitTokens % kTileTokens == 0);
/// Rows that share one pass over a tile, to hide the fetch and the transposition of W; more where token
/// panels, too, must be packed on the fly. 128 rows of 512 logits in f32 are 256 KiB of the L2 cache.
constexpr int64_t kHeadRows = 128;
template <typename C>
int64_t block_rows(const TensorView& w) {
  return in_place<C>(w) ? kHeadRows : 2 * kHeadRows;
}
/// Logit of the padding past the vocabulary; finite, so that 0 times it is 0.
constexpr float kPadding = -1e30f;

constexpr int64_t ceil_div(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

/// H in whole panels.
constexpr int64_t padded(int64_t features) {
  return ceil_div(features, kPanel) * kPanel;
}

inline void check_temperature(const char* op, double temperature) {
  if (temperature > 0 && std::isfinite(temperature)) return;
  throw Error("E_RANGE", format("%s: temperature must be positive and finite, got %g", op, temperature));
}

/// Divides rows into nearly equal blocks of at most `limit`, and smaller ones where `splits` tasks per block
/// would leave threads idle.
struct Blocks {
  int64_t rows, count;
  Blocks(int64_t rows, int64_t limit, int64_t splits, int64_t threads) : rows(rows) {
    const int64_t wanted = ceil_div(4 * threads, std::max<int64_t>(1, splits));
    count = std::max(ceil_div(rows, limit), std::min(ceil_div(rows, kTileRows<float>), wanted));
  }
  int64_t begin(int64_t block) const { return rows * block / count; }
  int64_t size(int64_t block) const { return begin(block + 1) - begin(block); }
  int64_t max_size() const { return count ? ceil_div(rows, count) : 0; }
};

/// Rows begin … begin + rows of x as C: in place where the types agree, else converted into `buffer`.
template <typename C>
const C* rows_as(const TensorView& x, int64_t begin, int64_t rows, C* buffer) {
  if (size_of(x.dtype) == sizeof(C)) return x.as<C>() + begin * x[1];
  by_storage(x.dtype, [&](auto t) {
    using X = decltype(t);
    const X* from = x.as<X>() + begin * x[1];
    each_vector(0, rows * x[1],
                [&](int64_t i, int lanes) { store_lanes(buffer + i, load_lanes(from + i, lanes), lanes); });
  });
  return buffer;
}

/// c[rows][kPanel] = or, with `accumulate`, += a[rows, k]·panelᵀ.
template <typename C>
void multiply_rows(const C* a, int64_t stride, int64_t rows, const C* panel, int64_t k, float* c,
                   bool accumulate) {
  gemm_block<C>(rows, {a, stride}, panel, k, c, nullptr, accumulate);
}

/// Unscaled logits of `rows` rows for tokens v0 … v0 + n; returns the number of panels.
/// `buffer` holds one token panel.
template <typename C>
int64_t tile_logits(const TensorView& w, const C* x, int64_t rows, int64_t v0, int64_t n, C* buffer,
                    float* logits) {
  const int64_t panels = ceil_div(n, kPanel);
  for (int64_t p = 0; p < panels; p++) {
    const C* panel = token_panel<C>(w, v0 + p * kPanel, buffer);
    float* block = logits + p * rows * kPanel;
    if (p + 1 < panels) prefetch_tokens(w, v0 + (p + 1) * kPanel);
    multiply_rows(x, w[1], rows, panel, w[1], block, false);
    for (int64_t v = n - p * kPanel; v < kPanel; v++) {
      for (int64_t r = 0; r < rows; r++) block[r * kPanel + v] = kPadding;
    }
  }
  return panels;
}

/// Logit of row r for token v of the tile.
inline float logit_at(const float* logits, int64_t rows, int64_t r, int64_t v) {
  return logits[(v / kPanel * rows + r) * kPanel + v % kPanel];
}

/// body(offset in the row, pointer) for each vector of row r of a tile.
template <typename F>
void each_logit_vector(float* logits, int64_t panels, int64_t rows, int64_t r, F body) {
  for (int64_t p = 0; p < panels; p++) {
    float* row = logits + (p * rows + r) * kPanel;
    for (int64_t i = 0; i < kPanel; i += kLanes) body(p * kPanel + i, row + i);
  }
}

/// sums[column panel][row][kPanel] = or, with `accumulate`, += weights[rows, n]·W[v0 … v0 + n]. `buffer`
/// holds one column panel.
template <typename C>
void multiply_tokens(const TensorView& w, const C* weights, int64_t stride, int64_t rows, int64_t v0,
                     int64_t n, C* buffer, float* sums, bool accumulate) {
  for (int64_t h = 0; h < w[1]; h += kPanel) {
    column_panel<C>(w, v0, n, h, buffer);
    if (h + kPanel < w[1]) prefetch_columns(w, v0, n, h + kPanel);
    multiply_rows(weights, stride, rows, buffer, n, sums + h * rows, accumulate);
  }
}

/// to[r][h … h + kPanel] = block[r], within `width` columns.
template <typename X>
void store_block(const float* block, int64_t rows, X* to, int64_t width, int64_t h) {
  for (int64_t r = 0; r < rows; r++) {
    each_vector(h, std::min(width, h + kPanel), [&](int64_t i, int lanes) {
      store_lanes(to + r * width + i, load(block + r * kPanel + i - h), lanes);
    });
  }
}

/// A buffer for rows of x as C, or null where x is used in place.
template <typename C>
C* buffer_for_rows(Scratch& scratch, const TensorView& x, int64_t rows) {
  return size_of(x.dtype) == sizeof(C) ? nullptr : scratch.take<C>(rows * x[1]);
}

/// Elements of a token panel or a column panel, whichever is larger.
template <typename C>
int64_t panel_elements(int64_t features, int64_t tokens) {
  return std::max(panel_stride<C>(features), panel_stride<C>(tokens));
}

/// Makes the tasks of a row block add their results in order of the split.
class Turns {
 public:
  Turns(Scratch& scratch, int64_t blocks) : turns_(scratch.take<std::atomic<int64_t>>(blocks)) {
    for (int64_t i = 0; i < blocks; i++) new (turns_ + i) std::atomic<int64_t>(0);
  }
  /// Earlier splits were handed out earlier, so their tasks are already running.
  void wait(int64_t block, int64_t split) {
    passed_.await([&] { return turns_[block].load() == split; });
  }
  void pass(int64_t block) {
    turns_[block].fetch_add(1);
    passed_.notify();
  }

 private:
  std::atomic<int64_t>* turns_;
  EventCount passed_;
};

}  // namespace steptrain::cpu::STEPTRAIN_ISA
