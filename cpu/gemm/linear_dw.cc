// linear_dw: dw[N,K] += dyᵀ·x (cpu/gemm/weight_gradient.h), db[N] += column sums of dy, over chunks of tokens in one region.
#include "cpu/gemm/weight_gradient.h"
#include "cpu/runtime/families.h"

namespace steptrain::cpu::STEPTRAIN_ISA {
namespace {

/// Adds the column sums of dy's rows to db.
template <typename T>
void add_columns(const T* dy, int64_t stride, int64_t rows, int64_t columns, float* db) {
  each_vector(columns, [&](int64_t j, auto... n) {
    vf sum = zero();
    for (int64_t t = 0; t < rows; t++) sum = sum + load(dy + t * stride + j, n...);
    store(db + j, load(db + j, n...) + sum, n...);
  });
}

template <typename Y, typename X>
void gradient(Stream& stream, const TensorView& x, const TensorView& dy, const TensorView& dw,
              const TensorView& db) {
  const int64_t tokens = x[0], outputs = dy[1];
  using T = Widened<Y>;
  using Product = WeightGradient<T, X, Y>;
  const Product product(stream, x, dy);
  constexpr int64_t rows = Product::kRows;
  T* const left = dw ? stream.scratch.take<T>(product.left_size(tokens)) : nullptr;
  const Grid<T> grid = product.grid(tokens, stream.pool.threads());
  const int64_t cuts = product.transposes(), tasks = dw ? grid.tasks() : 0;

  stream.pool.region([&](Worker& worker) {
    int64_t cut = worker.next(0), task = worker.next(1);
    for (int64_t chunk = 0; chunk * rows < tokens; chunk++) {
      const int64_t first = chunk * rows, last = std::min(first + rows, tokens);
      const typename Product::Chunk own{first, last, left, dw ? dw.as<float>() : nullptr};
      for (; cut < (chunk + 1) * cuts; cut = worker.next(0)) {
        const int64_t n = (cut - chunk * cuts) * kPanel, columns = std::min(kPanel, outputs - n);
        if (dw) product.transpose(own, cut - chunk * cuts);
        if (db)
          add_columns(dy.as<const Y>() + first * outputs + n, outputs, last - first, columns,
                      db.as<float>() + n);
      }
      worker.barrier();
      for (; task < (chunk + 1) * tasks; task = worker.next(1))
        product.multiply(worker.index, own, grid, task - chunk * tasks);
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
