// y = x·Wᵀ + bias + scale·u·Bᵀ for one or several weights and the same rows x, in one region: x is copied once where it
// must be, the low-rank rows of all pairs come first, then tasks take panels of all weights. An element's
// order of sums is that of its own weight alone, so its bits do not depend on the others. A residual is added to an
// element as it would be stored without one.
#pragma once

#include <algorithm>
#include <array>

#include "cpu/gemm/projection.h"

namespace steptrain::cpu::STEPTRAIN_ISA {

/// One of the weights, and where its product goes. `bias` and `residual`, which has the shape of y, may be absent.
template <typename T>
struct Output {
  const Projection<T>& weight;
  TensorView bias, y, residual = {};
};

template <typename T, size_t N>
void multiply_outputs(Stream& stream, const TensorView& x, const std::array<Output<T>, N>& outputs) {
  constexpr int kPack = 1, kMultiply = kPack + N, kTasks = kMultiply + N;
  static_assert(kTasks < 8, "the pool counts eight phases");
  const int threads = stream.pool.threads();
  int64_t buffer_size = 0, panels = 0, summed = 0;
  bool pairs = false, fills = false;
  for (const auto& [weight, bias, y, residual] : outputs) {
    buffer_size = std::max(buffer_size, weight.buffer_size());
    panels += weight.panels();
    pairs = pairs || weight.has_pair();
    fills = fills || weight.fills();
    summed = std::max(summed, weight.summed());
  }
  const Rows<T> rows(stream.scratch, x, summed);
  T* const buffers = stream.scratch.take<T>(threads * buffer_size);
  const Grid<T> grid(x[0], panels, x[1], threads, fills, !pairs);

  stream.pool.region([&](Worker& worker) {
    if (!rows.in_place()) rows.copy(worker, 0);
    for (size_t i = 0; i < N; i++) outputs[i].weight.pack(worker, kPack + static_cast<int>(i));
    if (pairs || !rows.in_place()) worker.barrier();
    for (size_t i = 0; i < N; i++) outputs[i].weight.multiply(worker, kMultiply + static_cast<int>(i), rows);
    if (pairs) worker.barrier();
    T* const buffer = buffers + worker.index * buffer_size;
    for (int64_t task; (task = worker.next(kTasks)) < grid.tasks();) {
      const int64_t first = grid.first_row(task);
      int64_t begin = 0;  // panels of the weights before
      for (const auto& [weight, bias, y, residual] : outputs) {
        const int64_t from = std::max<int64_t>(grid.first_panel(task) - begin, 0),
                      last = std::min(grid.last_panel(task) - begin, weight.panels());
        begin += weight.panels();
        for (int64_t p = from; p < last; p++) {
          const int64_t columns = weight.columns(p);
          const auto panel = weight.panel(p, buffer);
          alignas(64) float add[kPanel] = {};
          if (bias) to_floats(bias, p * kPanel, columns, add);
          each_block<T>(first, grid.last_row(task), rows.stride(), [&](int64_t t, int64_t count) {
            alignas(64) float c[kBlockRows<T> * kTileStride];
            weight.block(count, rows, t, panel, c, t == first && !grid.resident ? last : 0,
                         [&](int64_t r, int height, const auto& sums) {
                           const int64_t at = (t + r) * y[1] + p * kPanel;
                           put_columns(columns, height, c + r * kTileStride, sums,
                                       Stored<T>{y.template as<T>() + at, y[1], bias ? add : nullptr,
                                                 residual ? residual.template as<T>() + at : nullptr});
                         });
          });
        }
      }
    }
  });
}

}  // namespace steptrain::cpu::STEPTRAIN_ISA
