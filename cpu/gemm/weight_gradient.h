// The gradient of a weight: dw[N,K] += dyᵀ·x over some rows, in chunks of a fixed size, in order. Of a chunk tasks transpose dy,
// then each packs a panel of x (the sum runs over rows) and multiplies a block of outputs by it. A chunk is summed in f32 and
// then added, so the result does not depend on the thread count.
#pragma once

#include "cpu/gemm/rows.h"
#include "cpu/gemm/weight.h"

namespace steptrain::cpu::STEPTRAIN_ISA {

/// X: the dtype of x, Y: of dy, T: of the products.
template <typename T, typename X, typename Y = T>
class WeightGradient {
 public:
  static constexpr int64_t kRows = 1024;  // a panel of x, at most 128 KiB, stays in the L2 cache

  /// Rows [first, last) of x and dy, at most kRows; `left` has left_size() elements.
  struct Chunk {
    int64_t first, last;
    T* left;
    float* dw;
    int64_t count() const { return last - first; }
  };

  WeightGradient(Stream& stream, const TensorView& x, const TensorView& dy)
      : x_(x), dy_(dy), panels_(stream.scratch.take<T>(stream.pool.threads() * kPanelSize)) {}

  int64_t left_size(int64_t rows) const {
    return panels(dy_[1]) * kPanel * row_stride<T>(std::min(rows, kRows));
  }
  int64_t transposes() const { return panels(dy_[1]); }
  void transpose(const Chunk& chunk, int64_t task) const {
    const int64_t n = task * kPanel, outputs = dy_[1];
    transpose_rows<T>(dy_.as<const Y>() + chunk.first * outputs + n, outputs, chunk.count(),
                      std::min(kPanel, outputs - n), chunk.left + n * stride(chunk), stride(chunk));
  }

  Grid<T> grid(int64_t rows, int threads) const {
    return Grid<T>(dy_[1], panels(x_[1]), rows, threads, true);
  }
  /// A task of the grid, after all transposes of the chunk.
  void multiply(int member, const Chunk& chunk, const Grid<T>& grid, int64_t task) const {
    const int64_t features = x_[1], k = grid.first_panel(task) * kPanel;
    const int64_t columns = std::min(kPanel, features - k);
    T* const panel = panels_ + member * kPanelSize;
    pack_columns<T>(x_.as<const X>() + chunk.first * features + k, features, columns, chunk.count(), panel);
    each_tile<T>(grid.first_row(task), grid.last_row(task), stride(chunk), [&](int64_t n, int height) {
      alignas(64) float c[kTileRows<T> * kTileStride];
      gemm_tile<T>(height, chunk.left + n * stride(chunk), stride(chunk), panel, chunk.count(), c, false);
      for (int i = 0; i < height; i++) {
        float* const out = chunk.dw + (n + i) * features + k;
        each_vector(columns, [&](int64_t j, auto... rest) {
          store(out + j, load(out + j, rest...) + load(c + i * kTileStride + j), rest...);
        });
      }
    });
  }

 private:
  static constexpr int64_t kPanelSize = panel_stride<T>(kRows);

  static int64_t stride(const Chunk& chunk) { return row_stride<T>(chunk.count()); }

  const TensorView &x_, &dy_;
  T* panels_;
};

}  // namespace steptrain::cpu::STEPTRAIN_ISA
