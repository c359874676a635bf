// What the norms share: how a block walks along a row, x + residual, and the sum of the weight's gradient
// over chunks of rows in index order.
#pragma once

#include <algorithm>

#include "cuda/reduce.cuh"
#include "cuda/runtime/stream.h"
#include "cuda/storage.cuh"

namespace steptrain::cuda {

constexpr int kChunk = 16;        // rows whose dweight is one partial sum
constexpr int kMaxThreads = 512;  // per row
constexpr int kColumns = 128;     // per block that adds the partial sums

/// A multiple of the warp. Depends on the row's size alone, because it determines the order of sums.
inline int threads_for(int64_t size) {
  const int64_t groups = (size + kEight - 1) / kEight;
  return static_cast<int>(std::clamp<int64_t>((groups + kWarp - 1) / kWarp * kWarp, kWarp, kMaxThreads));
}

/// body(h, count) for the groups of eight elements of a row of `size` that the running thread takes.
template <typename F>
__device__ void each_group(int size, F body) {
  for (int h = static_cast<int>(threadIdx.x) * kEight; h < size; h += static_cast<int>(blockDim.x) * kEight)
    body(h, in_group(h, size));
}

/// What rmsnorm multiplies a row with, from the sum of its squares.
__device__ inline float inverse_rms(float squares, int size, float eps) {
  return 1.0f / sqrtf(squares / static_cast<float>(size) + eps);
}

/// v = x + residual (if any), rounded to storage.
template <typename T>
__device__ void load_sum(const T* x, const T* residual, int count, bool wide, float (&v)[kEight]) {
  load8(x, count, wide, v);
  if (!residual) return;
  float r[kEight];
  load8(residual, count, wide, r);
#pragma unroll
  for (int i = 0; i < kEight; i++) v[i] = stored<T>(v[i] + r[i]);
}

/// partial[h..] (first ? = : +=) a·b for eight elements.
__device__ inline void add_product(float* partial, int count, bool wide, bool first, const float (&a)[kEight],
                                   const float (&b)[kEight]) {
  float sums[kEight] = {};
  if (!first) load8(partial, count, wide, sums);
#pragma unroll
  for (int i = 0; i < kEight; i++) sums[i] = fmaf(a[i], b[i], sums[i]);
  store8(partial, count, wide, sums);
}

/// target[h] += Σ partial[chunk][h], in index order.
static __global__ void add_partials_kernel(float* target, const float* partial, int64_t chunks, int size) {
  const int h = static_cast<int>(blockIdx.x) * kColumns + static_cast<int>(threadIdx.x);
  if (h >= size) return;
  float total = target[h];
  for (int64_t chunk = 0; chunk < chunks; chunk++) total += partial[chunk * size + h];
  target[h] = total;
}

inline void add_partials(Stream& stream, const TensorView& target, const float* partial, int64_t chunks) {
  if (chunks == 0) return;
  const int64_t size = target[0];
  stream.launch(add_partials_kernel, (size + kColumns - 1) / kColumns, kColumns, 0, target.as<float>(),
                partial, chunks, size);
}

}  // namespace steptrain::cuda
