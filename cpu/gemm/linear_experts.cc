// linear_experts: y[S,N], the rows of each expert by linear's product with its own weight and pair, whose bits they have. One
// region: low-rank rows first, then tasks of an expert's rows by a run of its panels.
#include <optional>

#include "cpu/gemm/experts.h"
#include "cpu/gemm/projection.h"
#include "cpu/runtime/families.h"

namespace steptrain::cpu::STEPTRAIN_ISA {
namespace {

template <typename T>
void forward_experts(Stream& stream, const Args& args) {
  const auto [x, w, offsets, lora_a, lora_b, row_ids, positions, y, u] = args.tensors<9>();
  const auto experts = experts_with_rows("linear_experts", offsets, x[0]);
  const Dropout dropout =
      dropout_of("linear_experts", x[0], lora_a, lora_b, row_ids, positions, args.d(1), args.i(2), args.i(3));
  if (w[0] == 0 ? offsets[0] != 1 : (offsets[0] - 1) % w[0] != 0)
    throw Error("E_SHAPE", format("linear_experts: offsets have %lld groups, expected a multiple of the %lld experts of w",
                                  static_cast<long long>(offsets[0] - 1), static_cast<long long>(w[0])));
  if (u && !lora_a)
    throw Error("E_SHAPE", "linear_experts: u is the LoRA pairs'; pass lora_a and lora_b or no u");
  if (experts.empty()) return;
  const int threads = stream.pool.threads();
  const Rows<T> rows(stream.scratch, x, false);
  std::optional<ExpertLowRank<T>> low;
  if (lora_a) low.emplace(stream, experts, lora_a, false, u, x[0], 1.0f, args.f(0), dropout);
  // Groups of several adapters have the weights of the same experts.
  const auto projection = [&, &w = w, &lora_b = lora_b](int64_t group, int64_t count) {
    return Projection<T>(of_expert(w, group % w[0]), of_expert(lora_b, group), count,
                         low ? &low->rows() : nullptr);
  };
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
          each_block<T>(own.first, own.last, [&](int64_t t, int64_t count) {
            alignas(64) float c[kBlockRows<T> * kTileStride];
            weight.block(count, rows, t, panel, c, t == own.first ? last : 0);
            for (int64_t i = 0; i < count; i++) {
              T* const out = y.template as<T>() + (t + i) * y[1] + p * kPanel;
              each_vector(columns,
                          [&](int64_t j, auto... n) { store(out + j, load(c + i * kTileStride + j), n...); });
            }
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

}  // namespace

void register_linear_experts(KernelTable& table) {
  table.set("linear_experts", linear_experts);
}

}  // namespace steptrain::cpu::STEPTRAIN_ISA
