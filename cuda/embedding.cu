// embedding y[t] = weight[ids[t]] (`=`, any mix of f32 and bf16, or quantised), and its gradient dweight[ids[t]] += dy[t]
// in f32, added in order of t (cuda/chains.cuh). Deterministic. One launch, two for the gradient.
#include "cuda/chains.cuh"
#include "cuda/gemm/quantized.h"
#include "cuda/runtime/families.h"

namespace steptrain::cuda {
namespace {

template <typename W, typename T>
__global__ void __launch_bounds__(kThreads)
    embedding_kernel(const int32_t* ids, const W* weight, T* y, int64_t tokens, int64_t limit, int64_t width,
                     FaultReporter faults, bool wide) {
  const int64_t groups = (width + kEight - 1) / kEight;
  const int64_t task = int64_t{blockIdx.x} * kThreads + threadIdx.x, t = task / groups;
  if (t >= tokens) return;
  const int64_t id = ids[t];
  if (!index_holds(faults, 0, t, id, limit)) return;
  const int64_t h = task % groups * kEight;
  const int count = in_group(h, width);
  float v[kEight];
  load8(weight + id * width + h, count, wide, v);
  store8(y + t * width + h, count, wide, v);
}

void embedding(Stream& stream, const Args& args) {
  const auto [ids, weight, y] = args.tensors<3>();
  if (weight.format != Format::none) return dequantize_rows(stream, weight, ids, 0, y);
  const int64_t tokens = ids[0], width = weight[1];
  const int64_t tasks = tokens * ((width + kEight - 1) / kEight);
  by_storage(weight.dtype, [&](auto w) {
    by_storage(y.dtype, [&](auto t) {
      using W = decltype(w);
      using T = decltype(t);
      stream.launch(embedding_kernel<W, T>, (tasks + kThreads - 1) / kThreads, kThreads, 0, ids.as<int32_t>(),
                    weight.as<W>(), y.as<T>(), tokens, weight[0], width, stream.faults,
                    all_wide({weight, y}, width));
    });
  });
}

void embedding_backward(Stream& stream, const Args& args) {
  const auto [dy, ids, dweight] = args.tensors<3>();
  const int64_t width = dy[1];
  by_storage(dy.dtype, [&](auto t) {
    using T = decltype(t);
    sum_chains<true>(stream, ids, 1, dweight[0], PlainRows<T>{dy.as<T>(), width, all_wide({dy}, width)},
                     dweight.as<float>(), width, all_wide({dweight}, width));
  });
}

}  // namespace

void register_embedding(KernelTable& table) {
  table.set("embedding", embedding);
  table.set("embedding_backward", embedding_backward);
}

}  // namespace steptrain::cuda
