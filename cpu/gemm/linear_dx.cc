// linear_dx: dx[T,K] = dy[T,N]·W[N,K] + mask·(v·A) with v[T,r] = scale·dy·B; v and dx are overwritten; with
// `accumulate`, dx is accumulated into. One region computes v first; then each task transposes one panel of W
// (the forward pairs bf16 along K, this product along N) and multiplies a block of rows by it. f32 accumulators,
// in ascending n, then over the rank.
#include <optional>

#include "cpu/gemm/lora.h"
#include "cpu/runtime/families.h"

namespace steptrain::cpu::STEPTRAIN_ISA {
namespace {

template <typename T>
void backward(Stream& stream, const Args& args) {
  const auto [dy, w, lora_a, lora_b, row_ids, positions, dx, v] = args.tensors<8>();
  const Dropout dropout =
      dropout_of("linear_dx", dy[0], lora_a, lora_b, row_ids, positions, args.d(1), args.i(2), args.i(3));
  const bool accumulate = args.i(4) != 0;
  if (v && !lora_a) throw Error("E_SHAPE", "linear_dx: v is the LoRA pair's; pass lora_a and lora_b or no v");
  const int threads = stream.pool.threads();
  const Rows<T> rows(stream.scratch, dy);
  const Panels<T> weight(w, true), lora_panels(lora_a, true);
  const Dropout unmasked;  // the mask is on x, not on dy
  std::optional<LowRank<T>> lora;
  if (lora_a) lora.emplace(stream, lora_b, true, v, dy[0], args.f(0), args.f(0), unmasked);
  const int64_t lora_size = lora ? lora_panels.size() : 0;
  T* const buffers = stream.scratch.take<T>(threads * (weight.size() + lora_size));
  const Grid<T> grid(dy[0], weight.count(), dy[1], threads, true);

  stream.pool.region([&](Worker& worker) {
    if (!rows.in_place()) rows.copy(worker, 0);
    if (lora) lora->pack(worker, 1);
    if (lora || !rows.in_place()) worker.barrier();
    if (lora) {
      lora->multiply(worker, 2, rows);
      worker.barrier();
    }
    T* const panel = buffers + worker.index * (weight.size() + lora_size);
    T* const lora_panel = panel + weight.size();
    const auto add_pair = [&](int64_t t, int height, int64_t p, float* c) {
      if (!dropout)
        return gemm_tile<T>(height, lora->row(t), lora->stride(), lora_panel, lora->rank(), c, true);
      alignas(64) float low[kTileRows<T> * kTileStride], factors[(kTileRows<T> + 1) * kPanel];
      gemm_tile<T>(height, lora->row(t), lora->stride(), lora_panel, lora->rank(), low, false);
      dropout.window(t, height, p * kPanel, factors);
      for (int i = 0; i < height * kPanel; i += kLanes) {
        store(c + i, fma(load(low + i), load(factors + i), load(c + i)));
      }
    };
    for (int64_t task; (task = worker.next(3)) < grid.tasks();) {
      const int64_t p = grid.first_panel(task), columns = weight.columns(p);
      weight.fill(p, panel);
      if (lora) lora_panels.fill(p, lora_panel);
      each_block<T>(grid.first_row(task), grid.last_row(task), [&](int64_t t, int64_t count) {
        alignas(64) float c[kBlockRows<T> * kTileStride];
        gemm_block<T>(count, rows.left(t), panel, weight.depth(), c, nullptr);
        if (lora)
          each_tile<T>(0, count,
                       [&](int64_t i, int height) { add_pair(t + i, height, p, c + i * kTileStride); });
        for (int64_t i = 0; i < count; i++) {
          T* out = dx.as<T>() + (t + i) * dx[1] + p * kPanel;
          each_vector(columns, [&](int64_t j, auto... n) {
            const vf sum = load(c + i * kTileStride + j);
            store(out + j, accumulate ? load(out + j, n...) + sum : sum, n...);
          });
        }
      });
    }
  });
}

void linear_dx(Stream& stream, const Args& args) {
  args.tensor[0].dtype == DType::bf16 ? backward<bf16>(stream, args) : backward<float>(stream, args);
}

}  // namespace

void register_linear_dx(KernelTable& table) {
  table.set("linear_dx", linear_dx);
}

}  // namespace steptrain::cpu::STEPTRAIN_ISA
