// linear_dw: dw[N,K] += dyᵀ·x, db[N] += column sums of dy. One region takes the tokens in chunks of a fixed
// size, in order: all threads transpose the chunk of dy, then each task packs a panel of x (the sum runs over
// tokens) and multiplies a block of outputs by it. Each chunk is summed in f32 and then added, so the result
// does not depend on the thread count.
#include "cpu/gemm/rows.h"
#include "cpu/gemm/weight.h"
#include "cpu/runtime/families.h"

namespace steptrain::cpu::STEPTRAIN_ISA {
namespace {

constexpr int64_t kTokens = 1024;  // a panel of x, at most 128 KiB, stays in the L2 cache

/// Adds the column sums of dy's rows to db.
template <typename T>
void add_columns(const T* dy, int64_t stride, int64_t rows, int64_t columns, float* db) {
  each_vector(columns, [&](int64_t j, auto... n) {
    vf sum = zero();
    for (int64_t t = 0; t < rows; t++) sum = sum + load(dy + t * stride + j, n...);
    store(db + j, load(db + j, n...) + sum, n...);
  });
}

template <typename T, typename X>
void gradient(Stream& stream, const TensorView& x, const TensorView& dy, const TensorView& dw,
              const TensorView& db) {
  const int64_t tokens = x[0], outputs = dy[1], features = x[1];
  const int64_t stride = row_stride<T>(std::min(tokens, kTokens)), panel_size = panel_stride<T>(kTokens);
  T* const left = dw ? stream.scratch.take<T>(panels(outputs) * kPanel * stride) : nullptr;
  T* const buffers = stream.scratch.take<T>(stream.pool.threads() * panel_size);
  const Grid<T> grid(outputs, dw ? panels(features) : 0, tokens, stream.pool.threads(), true);
  const int64_t cuts = panels(outputs);

  stream.pool.region([&](Worker& worker) {
    T* const panel = buffers + worker.index * panel_size;
    int64_t cut = worker.next(0), task = worker.next(1);
    for (int64_t chunk = 0; chunk * kTokens < tokens; chunk++) {
      const int64_t first = chunk * kTokens, count = std::min(kTokens, tokens - first);
      for (; cut < (chunk + 1) * cuts; cut = worker.next(0)) {
        const int64_t n = (cut - chunk * cuts) * kPanel, columns = std::min(kPanel, outputs - n);
        const T* from = dy.as<const T>() + first * outputs + n;
        if (dw) transpose_rows<T>(from, outputs, count, columns, left + n * stride, stride);
        if (db) add_columns(from, outputs, count, columns, db.as<float>() + n);
      }
      worker.barrier();
      for (; task < (chunk + 1) * grid.tasks(); task = worker.next(1)) {
        const int64_t at = task - chunk * grid.tasks(), k = grid.first_panel(at) * kPanel;
        const int64_t columns = std::min(kPanel, features - k);
        pack_columns<T>(x.as<const X>() + first * features + k, features, columns, count, panel);
        each_tile<T>(grid.first_row(at), grid.last_row(at), [&](int64_t n, int height) {
          alignas(64) float c[kTileRows<T> * kTileStride];
          gemm_tile<T>(height, left + n * stride, stride, panel, count, c, false);
          for (int i = 0; i < height; i++) {
            float* out = dw.as<float>() + (n + i) * features + k;
            each_vector(columns, [&](int64_t j, auto... rest) {
              store(out + j, load(out + j, rest...) + load(c + i * kTileStride + j), rest...);
            });
          }
        });
      }
      worker.barrier();
    }
  });
}

void linear_dw(Stream& stream, const Args& args) {
  const auto [x, dy, dw, db] = args.tensors<4>();
  const bool narrow_x = x.dtype == DType::bf16;
  auto run = dy.dtype == DType::bf16 ? (narrow_x ? gradient<bf16, bf16> : gradient<bf16, float>)
                                     : (narrow_x ? gradient<float, bf16> : gradient<float, float>);
  run(stream, x, dy, dw, db);
}

}  // namespace

void register_linear_dw(KernelTable& table) {
  table.set("linear_dw", linear_dw);
}

}  // namespace steptrain::cpu::STEPTRAIN_ISA
