#include "cpu/gemm/lora.h"

#include "cpu/gemm/pair_gradients.h"

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

template <typename Y, typename X>
void gradients(Stream& stream, const LoraGradients& g, const TensorView& dy, const TensorView& v, float scale,
               const Dropout& dropout) {
  using T = Widened<Y>;
  using Pair = PairGradients<T, X, Y>;
  const Pair pair(stream, g.x, dy, g.u, v, scale, dropout);
  const int64_t tokens = dy[0];
  const typename Pair::Part all{0, tokens, g.da.as<float>(), g.db.as<float>(),
                                stream.scratch.take<T>(pair.transposed_size(tokens))};
  stream.pool.region([&](Worker& worker) {
    for (int64_t task; (task = worker.next(0)) < pair.transposes(tokens);) pair.transpose(all, task);
    worker.barrier();
    for (int64_t task; (task = worker.next(1)) < pair.products(tokens);)
      pair.multiply(worker.index, all, task);
  });
}

}  // namespace

void add_lora_gradients(Stream& stream, const LoraGradients& gradients_of, const TensorView& dy,
                        const TensorView& v, float scale, const Dropout& dropout) {
  const bool narrow_x = gradients_of.x.dtype == DType::bf16;
  auto run = dy.dtype == DType::bf16 ? (narrow_x ? gradients<bf16, bf16> : gradients<bf16, float>)
                                     : (narrow_x ? gradients<float, bf16> : gradients<float, float>);
  run(stream, gradients_of, dy, v, scale, dropout);
}

}  // namespace steptrain::cpu::STEPTRAIN_ISA
