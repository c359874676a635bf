// linear_experts_dx: dx[S,K] = or, with `accumulate`, +=, the rows of each expert by linear_dx's product with its own weight and
// pair, whose bits they have; v is overwritten. One region: v first, then tasks of an expert's rows by a panel of its weight.
#include <optional>

#include "cpu/gemm/experts.h"
#include "cpu/gemm/input_gradient.h"
#include "cpu/runtime/families.h"

namespace steptrain::cpu::STEPTRAIN_ISA {
namespace {

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
  const Rows<T> rows(stream.scratch, dy, false);
  const Dropout unmasked;
  std::optional<ExpertLowRank<T>> low;
  if (lora_a) low.emplace(stream, experts, lora_b, true, v, dy[0], args.f(0), args.f(0), unmasked);
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
          product.add(p, rows, own.first, own.last, buffer, dx, accumulate);
      });
    }
  });
}

void linear_experts_dx(Stream& stream, const Args& args) {
  args.tensor[0].dtype == DType::bf16 ? backward_experts<bf16>(stream, args)
                                      : backward_experts<float>(stream, args);
}

}  // namespace

void register_linear_experts_dx(KernelTable& table) {
  table.set("linear_experts_dx", linear_experts_dx);
}

}  // namespace steptrain::cpu::STEPTRAIN_ISA
