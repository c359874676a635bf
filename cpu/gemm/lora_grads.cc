// lora_grads: da[r,K] += vᵀ·drop(x), db[N,r] += scale·dyᵀ·u, in one region (cpu/gemm/pair_gradients.h).
#include "cpu/gemm/pair_gradients.h"
#include "cpu/runtime/families.h"

namespace steptrain::cpu::STEPTRAIN_ISA {

Dropout dropout_of(const char* op, int64_t tokens, const TensorView& lora_a, const TensorView& lora_b,
                   const TensorView& row_ids, const TensorView& positions, double rate, int64_t key0,
                   int64_t key1) {
  if (static_cast<bool>(lora_a) != static_cast<bool>(lora_b))
    throw Error("E_SHAPE", format("%s: lora_a and lora_b come together; only %s was given", op,
                                  lora_a ? "lora_a" : "lora_b"));
  if (!(rate >= 0 && rate < 1))
    throw Error("E_RANGE", format("%s: dropout must be at least 0 and below 1, got %g", op, rate));
  if (tokens > 0 && rate > 0 && lora_a && !(row_ids && positions))
    throw Error("E_SHAPE",
                format("%s: dropout %g needs row_ids and positions, which key its mask", op, rate));
  Dropout dropout;
  if (tokens > 0 && rate > 0 && lora_a) {
    dropout = {row_ids.as<const int32_t>(), positions.as<const int32_t>(), static_cast<float>(rate),
               static_cast<uint32_t>(key0), static_cast<uint32_t>(key1)};
  }
  return dropout;
}

namespace {

template <typename T, typename X>
void gradients(Stream& stream, const Args& args) {
  const auto [x, dy, u, v, da, db, row_ids, positions] = args.tensors<8>();
  const Dropout dropout =
      dropout_of("lora_grads", x[0], u, v, row_ids, positions, args.d(1), args.i(2), args.i(3));
  const PairGradients<T, X> pair(stream, x, dy, u, v, args.f(0), dropout);
  const int64_t tokens = x[0];
  const typename PairGradients<T, X>::Part all{0, tokens, da.template as<float>(), db.template as<float>(),
                                               stream.scratch.take<T>(pair.transposed_size(tokens))};
  stream.pool.region([&](Worker& worker) {
    for (int64_t task; (task = worker.next(0)) < pair.transposes(tokens);) pair.transpose(all, task);
    worker.barrier();
    for (int64_t task; (task = worker.next(1)) < pair.products(tokens);)
      pair.multiply(worker.index, all, task);
  });
}

void lora_grads(Stream& stream, const Args& args) {
  const bool narrow_x = args.tensor[0].dtype == DType::bf16;
  auto run = args.tensor[1].dtype == DType::bf16
                 ? (narrow_x ? gradients<bf16, bf16> : gradients<bf16, float>)
                 : (narrow_x ? gradients<float, bf16> : gradients<float, float>);
  run(stream, args);
}

}  // namespace

void register_lora_grads(KernelTable& table) {
  table.set("lora_grads", lora_grads);
}

}  // namespace steptrain::cpu::STEPTRAIN_ISA
