// silu(gate)·up of gate = x·W_gateᵀ and up = x·W_upᵀ in one region: u of both first, then each task multiplies a block of
// rows by the same panel of both weights. gate and up are rounded to the dtype of x before they are combined,
// so y has the bits of linear, linear, swiglu.
#pragma once

#include "cpu/gemm/projection.h"

namespace steptrain::cpu::STEPTRAIN_ISA {

/// y, and gate and up where they are given.
template <typename T>
void multiply_swiglu(Stream& stream, const TensorView& x, const Projection<T>& gates,
                     const Projection<T>& ups, const TensorView& y, const TensorView& gate,
                     const TensorView& up) {
  const int threads = stream.pool.threads();
  const Rows<T> rows(stream.scratch, x, std::max(gates.summed(), ups.summed()));
  const int64_t buffer_size = gates.buffer_size() + ups.buffer_size();
  T* const buffers = stream.scratch.take<T>(threads * buffer_size);
  const Grid<T> grid(x[0], gates.panels(), x[1], threads, gates.fills() || ups.fills());

  stream.pool.region([&](Worker& worker) {
    if (!rows.in_place()) rows.copy(worker, 0);
    gates.pack(worker, 1);
    ups.pack(worker, 2);
    const bool pairs = gates.has_pair() || ups.has_pair();
    if (pairs || !rows.in_place()) worker.barrier();
    gates.multiply(worker, 3, rows);
    ups.multiply(worker, 4, rows);
    if (pairs) worker.barrier();
    T* const buffer = buffers + worker.index * buffer_size;
    for (int64_t task; (task = worker.next(5)) < grid.tasks();) {
      const int64_t first = grid.first_row(task), last = grid.last_panel(task);
      for (int64_t p = grid.first_panel(task); p < last; p++) {
        const int64_t columns = gates.columns(p);
        const auto gate_panel = gates.panel(p, buffer);
        const auto up_panel = ups.panel(p, buffer + gates.buffer_size());
        each_block<T>(first, grid.last_row(task), rows.stride(), [&](int64_t t, int64_t count) {
          alignas(64) float g[kBlockRows<T> * kTileStride], u[kBlockRows<T> * kTileStride];
          alignas(64) T kept_gate[kPanel], kept_up[kPanel];
          const int64_t run = t == first ? last : 0;
          gates.block(count, rows, t, gate_panel, g, run);
          ups.block(count, rows, t, up_panel, u, run, [&](int64_t r, int height, const auto& sums) {
            sums(Kept{});
            for (int64_t i = r; i < r + height; i++) {
              const int64_t at = (t + i) * y[1] + p * kPanel;
              T* const out = y.template as<T>() + at;
              T* const out_gate = gate ? gate.template as<T>() + at : kept_gate;
              T* const out_up = up ? up.template as<T>() + at : kept_up;
              each_column(columns, [&](int64_t j, auto... n) {
                store(out_gate + j, load(g + i * kTileStride + j), n...);
                store(out_up + j, load(u + i * kTileStride + j), n...);
                const vf rounded = load(out_gate + j, n...);
                store(out + j, rounded * sigmoid(rounded) * load(out_up + j, n...), n...);
              });
            }
          });
        });
      }
    }
  });
}

}  // namespace steptrain::cpu::STEPTRAIN_ISA
