// Pairs of several adapters on experts (cuda/gemm/expert_pairs.h), as cuda/gemm/stack.cu has them of one weight: a warp
// computes one rank of a row, then a thread one output of a row. Neighbouring rows share an expert, not an adapter.
#include "cuda/gemm/expert_pairs.h"

#include "cuda/reduce.cuh"
#include "cuda/storage.cuh"

namespace steptrain::cuda {
namespace {

constexpr int kPairThreads = 256;

struct RowPairs {
  const int32_t *adapter, *offsets;
  const float* scales;
  int64_t adapters, experts, rank;
  float scale;
  int adapter_input;
  FaultReporter faults;

  /// The pair of row s and its scale; -1 where it takes none.
  __device__ int64_t of(int64_t s, float& scaled) const {
    const int64_t g = adapter[s];
    if (g == -1) return -1;
    if (g < 0 || g >= adapters) {
      report(faults, FaultKind::slot, adapter_input, s, g, adapters);
      return -1;
    }
    int64_t expert = 0, end = experts;  // the last whose rows begin at or before s
    while (end - expert > 1) {
      const int64_t middle = (expert + end) / 2;
      (offsets[middle] <= s ? expert : end) = middle;
    }
    scaled = scale * scales[g];
    return g * experts + expert;
  }
};

/// low[s][j] = x[s]·a[pair][j]; lanes take every 32nd element and are added by halves.
template <typename T>
__global__ void __launch_bounds__(kPairThreads)
    pair_low_kernel(const T* x, const float* a, const __grid_constant__ RowPairs pairs, float* low,
                    int64_t rows, int64_t depth) {
  const int64_t task = (int64_t{blockIdx.x} * kPairThreads + threadIdx.x) / kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int64_t s = task / pairs.rank, j = task % pairs.rank;
  if (s >= rows) return;
  float scaled;
  const int64_t pair = pairs.of(s, scaled);
  if (pair < 0) return;
  const T* const row = x + s * depth;
  const float* const column = a + (pair * pairs.rank + j) * depth;
  float sum = 0;
  for (int64_t k = lane; k < depth; k += kWarp) sum = fmaf(to_float(row[k]), stored<T>(column[k]), sum);
#pragma unroll
  for (int distance = kWarp / 2; distance > 0; distance /= 2)
    sum += __shfl_xor_sync(0xffffffffu, sum, distance);
  if (lane == 0) low[task] = stored<T>(sum);
}

template <typename T>
__global__ void __launch_bounds__(kPairThreads)
    pair_spread_kernel(const float* low, const float* b, const __grid_constant__ RowPairs pairs, float* out,
                       int64_t rows, int64_t columns) {
  const int64_t at = int64_t{blockIdx.x} * kPairThreads + threadIdx.x, s = at / columns, n = at % columns;
  if (s >= rows) return;
  float scaled = 0, sum = 0;
  const int64_t pair = pairs.of(s, scaled);
  if (pair >= 0) {
    const float *const own = low + s * pairs.rank, *const row = b + (pair * columns + n) * pairs.rank;
    for (int64_t j = 0; j < pairs.rank; j++) sum = fmaf(own[j], stored<T>(row[j]), sum);
  }
  out[at] = pair >= 0 ? scaled * sum : 0.0f;
}

}  // namespace

void multiply_expert_pairs(Stream& stream, const TensorView& x, const ExpertPairs& of, const Groups& groups,
                           float* out) {
  const int64_t rows = x[0], rank = of.a[1], columns = of.b[1];
  const RowPairs pairs{of.adapter.as<const int32_t>(),
                       groups.offsets,
                       of.scales.as<const float>(),
                       of.scales[0],
                       groups.count,
                       rank,
                       of.scale,
                       of.adapter_input,
                       stream.faults};
  float* const low = stream.scratch.take<float>(rows * rank);
  by_storage(x.dtype, [&](auto t) {
    using T = decltype(t);
    stream.launch(pair_low_kernel<T>, (rows * rank * kWarp + kPairThreads - 1) / kPairThreads, kPairThreads,
                  0, x.as<const T>(), of.a.as<const float>(), pairs, low, rows, x[1]);
    stream.launch(pair_spread_kernel<T>, (rows * columns + kPairThreads - 1) / kPairThreads, kPairThreads, 0,
                  static_cast<const float*>(low), of.b.as<const float>(), pairs, out, rows, columns);
  });
}

}  // namespace steptrain::cuda
