// linear_experts_lora_grads and linear_experts_dw: da, db and dw of each expert += what lora_grads and linear_dw add for its rows
// alone, whose bits they have.
#include "cpu/gemm/experts.h"
#include "cpu/gemm/pair_gradients.h"
#include "cpu/gemm/weight_gradient.h"
#include "cpu/runtime/families.h"

namespace steptrain::cpu::STEPTRAIN_ISA {
namespace {

template <typename T, typename X>
void lora_gradients(Stream& stream, const Args& args) {
  using Part = typename PairGradients<T, X>::Part;
  const auto [x, dy, u, v, offsets, da, db, row_ids, positions] = args.tensors<9>();
  const auto experts = experts_with_rows("linear_experts_lora_grads", offsets, x[0]);
  const Dropout dropout = dropout_of("linear_experts_lora_grads", x[0], u, v, row_ids, positions, args.d(1),
                                     args.i(2), args.i(3));
  const PairGradients<T, X> pairs(stream, x, dy, u, v, args.f(0), dropout);
  TaskLists<Part> transposes, products;
  int64_t size = 0;
  for (const ExpertRows& rows : experts) size += pairs.transposed_size(rows.count());
  T* transposed = stream.scratch.take<T>(size);
  for (const ExpertRows& rows : experts) {
    const Part part{rows.first, rows.last, of_expert(da, rows.expert).template as<float>(),
                    of_expert(db, rows.expert).template as<float>(), transposed};
    transposed += pairs.transposed_size(rows.count());
    transposes.add(part, pairs.transposes(rows.count()));
    products.add(part, pairs.products(rows.count()));
  }
  stream.pool.region([&](Worker& worker) {
    for (int64_t task; (task = worker.next(0)) < transposes.count();)
      transposes.at(task, [&](const Part& part, int64_t own) { pairs.transpose(part, own); });
    worker.barrier();
    for (int64_t task; (task = worker.next(1)) < products.count();)
      products.at(task, [&](const Part& part, int64_t own) { pairs.multiply(worker.index, part, own); });
  });
}

template <typename T, typename X>
void weight_gradients(Stream& stream, const Args& args) {
  using Chunk = typename WeightGradient<T, X>::Chunk;
  constexpr int64_t chunk_rows = WeightGradient<T, X>::kRows;
  struct Product {
    Chunk chunk;
    Grid<T> grid;
  };
  const auto [x, dy, offsets, dw] = args.tensors<4>();
  const auto experts = experts_with_rows("linear_experts_dw", offsets, x[0]);
  const WeightGradient<T, X> product(stream, x, dy);
  const int active = static_cast<int>(std::max<size_t>(experts.size(), 1)), threads = stream.pool.threads();
  int64_t size = 0, chunks = 0;
  for (const ExpertRows& rows : experts) {
    size += product.left_size(rows.count());
    chunks = std::max(chunks, (rows.count() + chunk_rows - 1) / chunk_rows);
  }
  // Chunk c of all experts that have so many rows; each expert's chunks share a `left`.
  std::vector<TaskLists<Chunk>> transposes(static_cast<size_t>(chunks));
  std::vector<TaskLists<Product>> products(transposes.size());
  T* left = stream.scratch.take<T>(size);
  for (const ExpertRows& rows : experts) {
    const Grid<T> grid = product.grid(rows.count(), (threads + active - 1) / active);
    size_t c = 0;
    for (int64_t first = rows.first; first < rows.last; first += chunk_rows, c++) {
      const Chunk chunk{first, std::min(first + chunk_rows, rows.last), left,
                        of_expert(dw, rows.expert).template as<float>()};
      transposes[c].add(chunk, product.transposes());
      products[c].add({chunk, grid}, grid.tasks());
    }
    left += product.left_size(rows.count());
  }
  stream.pool.region([&](Worker& worker) {
    int64_t cut = worker.next(0), task = worker.next(1), cuts = 0, tasks = 0;  // the latter of earlier chunks
    for (size_t c = 0; c < transposes.size(); c++) {
      for (; cut - cuts < transposes[c].count(); cut = worker.next(0)) {
        transposes[c].at(cut - cuts, [&](const Chunk& chunk, int64_t own) { product.transpose(chunk, own); });
      }
      cuts += transposes[c].count();
      worker.barrier();
      for (; task - tasks < products[c].count(); task = worker.next(1)) {
        products[c].at(task - tasks, [&](const Product& own, int64_t at) {
          product.multiply(worker.index, own.chunk, own.grid, at);
        });
      }
      tasks += products[c].count();
      worker.barrier();
    }
  });
}

void linear_experts_dw(Stream& stream, const Args& args) {
  const bool narrow_x = args.tensor[0].dtype == DType::bf16;
  auto run = args.tensor[1].dtype == DType::bf16
                 ? (narrow_x ? weight_gradients<bf16, bf16> : weight_gradients<bf16, float>)
                 : (narrow_x ? weight_gradients<float, bf16> : weight_gradients<float, float>);
  run(stream, args);
}

void linear_experts_lora_grads(Stream& stream, const Args& args) {
  const bool narrow_x = args.tensor[0].dtype == DType::bf16;
  auto run = args.tensor[1].dtype == DType::bf16
                 ? (narrow_x ? lora_gradients<bf16, bf16> : lora_gradients<bf16, float>)
                 : (narrow_x ? lora_gradients<float, bf16> : lora_gradients<float, float>);
  run(stream, args);
}

}  // namespace

void register_linear_experts_grads(KernelTable& table) {
  table.set("linear_experts_lora_grads", linear_experts_lora_grads);
  table.set("linear_experts_dw", linear_experts_dw);
}

}  // namespace steptrain::cpu::STEPTRAIN_ISA
