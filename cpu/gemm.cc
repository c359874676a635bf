// linear: y[T,N] = x[T,K]·W[N,K]ᵀ + bias + scale·u·Bᵀ with u[T,r] = drop(x)·Aᵀ; y and u =. One region: u
// first, then every tile of y runs over K and on over r, in the dtype of x (weights and adapters of another
// dtype are cast as they are packed), with f32 accumulators and one order per element, so a row's bits depend
// on that row alone.
#include "cpu/gemm.h"

#include <optional>

#include "cpu/families.h"
#include "cpu/gemm_lora.h"

namespace steptrain::cpu::STEPTRAIN_ISA {
namespace {

template <typename T>
void forward(Stream& stream, const Args& args) {
  const auto [x, w, bias, lora_a, lora_b, row_ids, positions, y, u] = args.tensors<9>();
  const Dropout dropout =
      dropout_of("linear", x[0], lora_a, lora_b, row_ids, positions, args.d(1), args.i(2), args.i(3));
  if (u && !lora_a) throw Error("E_SHAPE", "linear: u is the LoRA pair's; pass lora_a and lora_b or no u");
  const int threads = stream.pool.threads();
  const Rows<T> rows(stream.scratch, x);
  const Panels<T> weight(w, false), extra(lora_b, false);
  std::optional<LowRank<T>> lora;
  if (lora_a) lora.emplace(stream, lora_a, false, u, x[0], 1.0f, args.f(0), dropout);
  const int64_t panel_size = weight.in_place() ? 0 : weight.size(), extra_size = lora ? extra.size() : 0;
  T* const buffers = stream.scratch.take<T>(threads * (panel_size + extra_size));
  const Grid grid(x[0], weight.count(), threads, !weight.in_place());

  stream.pool.region([&](Worker& worker) {
    if (!rows.in_place()) rows.copy(worker, 0);
    if (lora) lora->pack(worker, 1);
    if (lora || !rows.in_place()) worker.barrier();
    if (lora) {
      lora->multiply(worker, 2, rows);
      worker.barrier();
    }
    T* const buffer = buffers + worker.index * (panel_size + extra_size);
    for (int64_t task; (task = worker.next(3)) < grid.tasks();) {
      const int64_t p = grid.panel(task), columns = weight.columns(p);
      const T* panel = weight.panel(p, buffer);
      if (lora) extra.fill(p, buffer + panel_size);
      alignas(64) float add[kPanel] = {};
      if (bias) to_floats(bias, p * kPanel, columns, add);
      each_tile(grid.first_row(task), grid.last_row(task), [&](int64_t t, int height) {
        alignas(64) float c[kTileRows * kTileStride];
        gemm_tile<T>(height, rows.row(t), rows.stride(), panel, weight.depth(), c, false);
        if (lora) {
          gemm_tile<T>(height, lora->row(t), lora->stride(), buffer + panel_size, lora->rank(), c, true);
        }
        for (int i = 0; i < height; i++) {
          T* out = y.as<T>() + (t + i) * y[1] + p * kPanel;
          each_vector(columns, [&](int64_t j, auto... n) {
            const vf sum = load(c + i * kTileStride + j);
            store(out + j, bias ? sum + load(add + j) : sum, n...);
          });
        }
      });
    }
  });
}

}  // namespace

void linear(Stream& stream, const Args& args) {
  args.tensor[0].dtype == DType::bf16 ? forward<bf16>(stream, args) : forward<float>(stream, args);
}

void register_gemm(KernelTable& table) {
  table.packed_bytes = packed_bytes;
  table.set("pack_weight", pack_weight);
  table.set("unpack_weight", unpack_weight);
  table.set("linear", linear);
  table.set("linear_dx", linear_dx);
  table.set("linear_dw", linear_dw);
  table.set("lora_grads", lora_grads);
}

}  // namespace steptrain::cpu::STEPTRAIN_ISA
