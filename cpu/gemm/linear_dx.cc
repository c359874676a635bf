// linear_dx: dx[T,K] = dy[T,N]·W[N,K] + mask·(v·A) with v[T,r] = scale·dy·B; v and dx are overwritten; with
// `accumulate`, dx is accumulated into. One region computes v first; then each task multiplies a block of rows by a panel of W
// (cpu/gemm/input_gradient.h). f32 accumulators, in ascending n, then over the rank. A second region adds the gradients of
// the pair.
#include <optional>

#include "cpu/gemm/input_gradient.h"
#include "cpu/runtime/families.h"

namespace steptrain::cpu::STEPTRAIN_ISA {
namespace {

template <typename T>
void backward(Stream& stream, const Args& args) {
  auto [dy, w, lora_a, lora_b, row_ids, positions, x, u, da, db, dx, v] = args.tensors<12>();
  const Dropout dropout =
      dropout_of("linear_dx", dy[0], lora_a, lora_b, row_ids, positions, args.d(1), args.i(2), args.i(3));
  const bool accumulate = args.i(4) != 0;
  const LoraGradients gradients{x, u, da, db};
  check_gradients(gradients, lora_a, v, stream.scratch);
  const int threads = stream.pool.threads();
  const Rows<T> rows(stream.scratch, dy);
  const Dropout unmasked;
  std::optional<LowRank<T>> lora;
  if (lora_a) lora.emplace(stream, lora_b, true, v, dy[0], args.f(0), args.f(0), unmasked);
  const InputGradient<T> product(w, lora_a, lora ? &*lora : nullptr, dropout);
  T* const buffers = stream.scratch.take<T>(threads * product.buffer_size());
  const Grid<T> grid(dy[0], product.panels(), dy[1], threads, true);

  stream.pool.region([&, &dx = dx](Worker& worker) {
    if (!rows.in_place()) rows.copy(worker, 0);
    if (lora) lora->pack(worker, 1);
    if (lora || !rows.in_place()) worker.barrier();
    if (lora) {
      lora->multiply(worker, 2, rows);
      worker.barrier();
    }
    T* const buffer = buffers + worker.index * product.buffer_size();
    for (int64_t task; (task = worker.next(3)) < grid.tasks();) {
      const int64_t panel = grid.first_panel(task);
      product.add(panel, panel + threads, rows, grid.first_row(task), grid.last_row(task), buffer, dx,
                  accumulate);
    }
  });
  if (x) add_lora_gradients(stream, gradients, dy, v, args.f(0), dropout);
}

void linear_dx(Stream& stream, const Args& args) {
  args.tensor[0].dtype == DType::bf16 ? backward<bf16>(stream, args) : backward<float>(stream, args);
}

}  // namespace

void register_linear_dx(KernelTable& table) {
  table.set("linear_dx", linear_dx);
}

}  // namespace steptrain::cpu::STEPTRAIN_ISA
