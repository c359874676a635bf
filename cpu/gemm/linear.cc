// linear: y[T,N] = x[T,K]·W[N,K]ᵀ + bias + scale·u·Bᵀ with u[T,r] = drop(x)·Aᵀ; y and u are =. One region
// computes u first, or the ranks of each row's own adapter of a stack; then every tile of y sums over K and continues over r. The product is in the dtype of x
// (weights and adapters of another dtype are cast as they are packed) with f32 accumulators. Every element
// has one order of sums, so a row's bits depend on that row alone.
#include "cpu/gemm/projection.h"
#include "cpu/runtime/families.h"

namespace steptrain::cpu::STEPTRAIN_ISA {
namespace {

template <typename T>
void forward(Stream& stream, const Args& args) {
  const auto [x, w, bias, lora_a, lora_b, row_ids, positions, stack_a, stack_b, adapter, ranks, scales, y,
              u] = args.tensors<14>();
  const Dropout dropout =
      dropout_of("linear", x[0], lora_a, lora_b, row_ids, positions, args.d(1), args.i(2), args.i(3));
  if (u && !lora_a) throw Error("E_SHAPE", "linear: u is the LoRA pair's; pass lora_a and lora_b or no u");
  const Stack stack{adapter, ranks, scales};
  check_stack("linear", "", stack, x.dtype, stack_a, stack_b);
  if (stack && lora_a) throw Error("E_SHAPE", "linear: pass one LoRA pair or a stack of them, not both");
  const int threads = stream.pool.threads();
  const Rows<T> rows(stream.scratch, x);
  Projection<T> weight(stream, w, lora_a, lora_b, u, x[0], args.f(0), dropout);
  if (stack) weight.add_stack(stream, stack, stack_a, stack_b, x[0]);
  T* const buffers = stream.scratch.take<T>(threads * weight.buffer_size());
  const Grid grid(x[0], weight.panels(), threads, !weight.in_place());

  stream.pool.region([&](Worker& worker) {
    if (!rows.in_place()) rows.copy(worker, 0);
    weight.pack(worker, 1);
    if (weight.has_pair() || !rows.in_place()) worker.barrier();
    weight.multiply(worker, 2, rows);
    if (weight.has_pair()) worker.barrier();
    T* const buffer = buffers + worker.index * weight.buffer_size();
    for (int64_t task; (task = worker.next(3)) < grid.tasks();) {
      const int64_t first = grid.first_row(task), last = grid.last_panel(task);
      for (int64_t p = grid.first_panel(task); p < last; p++) {
        const int64_t columns = weight.columns(p);
        const auto panel = weight.panel(p, buffer);
        alignas(64) float add[kPanel] = {};
        if (bias) to_floats(bias, p * kPanel, columns, add);
        each_block(first, grid.last_row(task), [&](int64_t t, int64_t count) {
          alignas(64) float c[kBlockRows * kTileStride];
          weight.block(count, rows, t, panel, c, t == first ? last : 0);
          for (int64_t i = 0; i < count; i++) {
            T* out = y.as<T>() + (t + i) * y[1] + p * kPanel;
            each_vector(columns, [&](int64_t j, auto... n) {
              const vf sum = load(c + i * kTileStride + j);
              store(out + j, bias ? sum + load(add + j) : sum, n...);
            });
          }
        });
      }
    }
  });
}

void linear(Stream& stream, const Args& args) {
  args.tensor[0].dtype == DType::bf16 ? forward<bf16>(stream, args) : forward<float>(stream, args);
}

}  // namespace

void register_linear(KernelTable& table) {
  table.set("linear", linear);
}

}  // namespace steptrain::cpu::STEPTRAIN_ISA
