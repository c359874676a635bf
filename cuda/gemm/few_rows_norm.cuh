// The RMSNorm in front of a product of up to 16 rows (cuda/gemm/few_rows_stream.cuh), computed anew by every block: it
// puts the normed rows into shared memory, from which its warps then multiply. Sums have the order of rmsnorm, so that
// the bits are those of rmsnorm and then the product, and which of the two a batch takes is free.
#pragma once

#include <initializer_list>

#include "cuda/gemm/few_rows.cuh"
#include "cuda/norm.cuh"

namespace steptrain::cuda {
namespace few {

constexpr int kNormRows = 2 * kGroup;
constexpr int kNormWarps = kMaxThreads / kWarp;
/// Of normed rows: leaves room for two blocks on a multiprocessor.
constexpr int64_t kNormBytes = 56 << 10;

struct Norm {
  const void* weight;  // [depth]
  DType dtype;
  float eps;
  int warps;  // of a block of rmsnorm for rows of this size
};
struct NoNorm {};
template <typename Norm>
constexpr bool kNorms = !std::is_same_v<Norm, NoNorm>;

inline Norm norm_of(const TensorView& weight, float eps) {
  return {weight.data, weight.dtype, eps, threads_for(weight[0]) / kWarp};
}

/// Bytes from one normed row to the next: an odd number of steps, so that two rows lie in different banks.
__host__ __device__ inline int norm_stride(int64_t depth) {
  return (steps_of(depth) | 1) * kStepDepth * 2;
}

/// Whether blocks may norm the rows of x themselves, for products with `weights` without LoRA pairs.
inline bool can_norm(const TensorView& x, std::initializer_list<TensorView> weights) {
  if (x[0] == 0 || x[0] > kNormRows || !readable_async(factor(x))) return false;
  for (const TensorView& w : weights)
    if (w.format != Format::none || !readable_once_bf16(factor(w))) return false;
  return x[0] * norm_stride(x[1]) <= kNormBytes;
}

/// Puts the rows of x, normed, into the block's dynamic shared memory, zeros behind them up to a whole step. By all
/// kThreads threads, which may read them afterwards.
template <int kThreads>
__device__ void put_normed(const Factor& x, const Norm& norm) {
  __shared__ float squares_of[kNormRows][kNormWarps], scales[kNormRows];
  char* const shared = dynamic_shared();
  const int thread = static_cast<int>(threadIdx.x), lane = thread % kWarp;
  const int rows = static_cast<int>(x.rows), size = static_cast<int>(x.columns);
  const int groups = size / kEight, stride = norm_stride(size);
  const auto place = [&](int row, int group) {
    return reinterpret_cast<bf16*>(shared + row * stride) + group * kEight;
  };

  // A warp here for each warp of a row's block in rmsnorm.
  for (int task = thread / kWarp; task < rows * norm.warps; task += kThreads / kWarp) {
    const int row = task / norm.warps, warp = task % norm.warps;
    const bf16* const from = static_cast<const bf16*>(x.data) + int64_t{row} * size;
    float squares = 0;
    for (int group = warp * kWarp + lane; group < groups; group += norm.warps * kWarp) {
      float v[kEight];
      load8(from + group * kEight, kEight, true, v);
#pragma unroll
      for (int i = 0; i < kEight; i++) squares = fmaf(v[i], v[i], squares);
      store8(place(row, group), kEight, true, v);
    }
#pragma unroll
    for (int distance = kWarp / 2; distance > 0; distance /= 2)
      squares += __shfl_xor_sync(0xffffffffu, squares, distance);
    if (lane == 0) squares_of[row][warp] = squares;
  }
  __syncthreads();
  if (thread < rows) {
    float total = squares_of[thread][0];
    for (int warp = 1; warp < norm.warps; warp++) total += squares_of[thread][warp];
    scales[thread] = inverse_rms(total, size, norm.eps);
  }
  __syncthreads();

  const int all = steps_of(size) * kStepDepth / kEight;
  for (int i = thread; i < rows * all; i += kThreads) {
    const int row = i / all, group = i % all;
    float v[kEight] = {}, w[kEight];
    if (group < groups) {
      load8(place(row, group), kEight, true, v);
      fetch({norm.weight, norm.dtype, 1, size}, 0, group * kEight, w);
#pragma unroll
      for (int j = 0; j < kEight; j++) v[j] = v[j] * scales[row] * w[j];
    }
    store8(place(row, group), kEight, true, v);
  }
  __syncthreads();
}

/// What a lane reads of one normed row: its eight elements of a step, zeros of a row that x does not have.
__device__ inline uint4 read_normed(const Factor& x, int row, int step, int lane) {
  if (row >= x.rows) return make_uint4(0, 0, 0, 0);
  const int at = row * norm_stride(x.columns) + (step * 4 + lane % 4) * 16;
  return *reinterpret_cast<const uint4*>(dynamic_shared() + at);
}

}  // namespace few
}  // namespace steptrain::cuda
