// linear_experts: y[S,N], the rows of each expert by linear's product with its own weight and pair, whose bits they have. One
// region: low-rank rows first, then tasks of an expert's rows by a run of its panels. linear_experts_dx: dx[S,K] = or, with
// `accumulate`, +=, likewise by linear_dx's; v is overwritten. linear_experts_lora_grads and linear_experts_dw: da, db and dw of
// each expert += what linear_dx and linear_dw add for its rows alone.
#include <optional>

#include "core/experts.h"
#include "cpu/gemm/experts.h"
#include "cpu/gemm/input_gradient.h"
#include "cpu/gemm/pair_gradients.h"
#include "cpu/gemm/projection.h"
#include "cpu/gemm/weight_gradient.h"
#include "cpu/runtime/families.h"

namespace steptrain::cpu::STEPTRAIN_ISA {
namespace {

template <typename T>
void forward_experts(Stream& stream, const Args& args) {
  const auto [x, w, offsets, lora_a, lora_b, scales, row_ids, positions, y, u] = args.tensors<10>();
  const auto experts = experts_with_rows("linear_experts", offsets, x[0]);
  const Dropout dropout =
      dropout_of("linear_experts", x[0], lora_a, lora_b, row_ids, positions, args.d(1), args.i(2), args.i(3));
  const int64_t bare = groups_without_pair(offsets, w, lora_a, scales, u);
  if (experts.empty()) return;
  const int threads = stream.pool.threads();
  std::optional<ExpertLowRank<T>> low;
  if (lora_a) low.emplace(stream, experts, lora_a, bare, scales, false, u, x[0], 1.0f, args.f(0), dropout);
  // Groups of several adapters have the weights of the same experts.
  const auto projection = [&, &w = w, &lora_b = lora_b](int64_t group, int64_t count) {
    const TensorView weight = of_expert(w, group % w[0]);
    if (!low || group < bare) return Projection<T>(weight, {}, count, nullptr);
    return Projection<T>(weight, of_expert(lora_b, group - bare), count, &low->rows());
  };
  const Rows<T> rows(stream.scratch, x, projection(0, 1).summed(), false);
  int64_t buffer_size = 0;
  for (const ExpertRows& own : experts)
    buffer_size = std::max(buffer_size, projection(own.expert, own.count()).buffer_size());
  T* const buffers = stream.scratch.take<T>(threads * buffer_size);
  const ExpertGrid<T> grid(experts, projection(0, 1).panels(), x[1], threads,
                           [&](int64_t count) { return projection(0, count).fills(); });

  stream.pool.region([&, &y = y](Worker& worker) {
    if (!rows.in_place()) {
      rows.copy(worker, 0);
      worker.barrier();
    }
    if (low) {
      low->multiply(worker, 1, rows);
      worker.barrier();
    }
    T* const buffer = buffers + worker.index * buffer_size;
    for (int64_t task; (task = worker.next(2)) < grid.tasks();) {
      grid.at(task, [&](const ExpertRows& own, int64_t first, int64_t last, int64_t all) {
        const Projection<T> weight = projection(own.expert, all);
        for (int64_t p = first; p < last; p++) {
          const auto panel = weight.panel(p, buffer);
          const int64_t columns = weight.columns(p);
          each_block<T>(own.first, own.last, rows.stride(), [&](int64_t t, int64_t count) {
            alignas(64) float c[kBlockRows<T> * kTileStride];
            weight.block(count, rows, t, panel, c, t == own.first ? last : 0,
                         [&](int64_t r, int height, const auto& sums) {
                           T* const out = y.template as<T>() + (t + r) * y[1] + p * kPanel;
                           put_columns(columns, height, c + r * kTileStride, sums, Stored<T>{out, y[1]});
                         });
          });
        }
      });
    }
  });
}

void linear_experts(Stream& stream, const Args& args) {
  args.tensor[0].dtype == DType::bf16 ? forward_experts<bf16>(stream, args)
                                      : forward_experts<float>(stream, args);
}

// ---- linear_experts_dx ---------------------------------------------------------------------------------------------

template <typename T>
void backward_experts(Stream& stream, const Args& args) {
  const auto [dy, w, offsets, lora_a, lora_b, row_ids, positions, dx, v] = args.tensors<9>();
  const auto experts = experts_with_rows("linear_experts_dx", offsets, dy[0]);
  const Dropout dropout = dropout_of("linear_experts_dx", dy[0], lora_a, lora_b, row_ids, positions,
                                     args.d(1), args.i(2), args.i(3));
  const bool accumulate = args.i(4) != 0;
  if (v && !lora_a)
    throw Error("E_SHAPE", "linear_experts_dx: v is the LoRA pairs'; pass lora_a and lora_b or no v");
  if (experts.empty()) return;
  const int threads = stream.pool.threads();
  const Rows<T> rows(stream.scratch, dy, 0, false);
  const Dropout unmasked;
  std::optional<ExpertLowRank<T>> low;
  if (lora_a)
    low.emplace(stream, experts, lora_b, 0, TensorView{}, true, v, dy[0], args.f(0), args.f(0), unmasked);
  const auto gradient = [&, &w = w, &lora_a = lora_a](int64_t expert) {
    return InputGradient<T>(of_expert(w, expert), of_expert(lora_a, expert), low ? &low->rows() : nullptr,
                            dropout);
  };
  const int64_t buffer_size = gradient(0).buffer_size();
  T* const buffers = stream.scratch.take<T>(threads * buffer_size);
  const ExpertGrid<T> grid(experts, gradient(0).panels(), dy[1], threads, [](int64_t) { return true; });

  stream.pool.region([&, &dx = dx](Worker& worker) {
    if (!rows.in_place()) {
      rows.copy(worker, 0);
      worker.barrier();
    }
    if (low) {
      low->multiply(worker, 1, rows);
      worker.barrier();
    }
    T* const buffer = buffers + worker.index * buffer_size;
    for (int64_t task; (task = worker.next(2)) < grid.tasks();) {
      grid.at(task, [&](const ExpertRows& own, int64_t first, int64_t last, int64_t) {
        const InputGradient<T> product = gradient(own.expert);
        for (int64_t p = first; p < last; p++)
          product.add(p, p + 1, rows, own.first, own.last, buffer, dx, accumulate);
      });
    }
  });
}

void linear_experts_dx(Stream& stream, const Args& args) {
  args.tensor[0].dtype == DType::bf16 ? backward_experts<bf16>(stream, args)
                                      : backward_experts<float>(stream, args);
}

// ---- gradients of pairs and weights --------------------------------------------------------------------------------

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

void register_linear_experts(KernelTable& table) {
  table.set("linear_experts", linear_experts);
  table.set("linear_experts_dx", linear_experts_dx);
  table.set("linear_experts_lora_grads", linear_experts_lora_grads);
  table.set("linear_experts_dw", linear_experts_dw);
}

}  // namespace steptrain::cpu::STEPTRAIN_ISA
