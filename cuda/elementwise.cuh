// Elementwise kernels over flat tensors of one storage type: a thread takes eight neighbouring elements, in
// f32. An element's value depends on its own inputs alone.
#pragma once

#include "cuda/runtime/stream.h"
#include "cuda/storage.cuh"

namespace steptrain::cuda {

constexpr int kThreads = 256;

inline int64_t blocks_for(int64_t n) {
  return (n + kThreads * kEight - 1) / (kThreads * kEight);
}

template <typename T, int kInputs, int kOutputs>
struct Operands {
  const T* in[kInputs];
  T* out[kOutputs];
};

/// body(in, out) on the i-th elements of all operands, for i < n. Outputs may be inputs.
template <typename T, int kInputs, int kOutputs, typename F>
__global__ void __launch_bounds__(kThreads)
    elementwise_kernel(Operands<T, kInputs, kOutputs> operands, int64_t n, bool wide, F body) {
  const int64_t at = (int64_t{blockIdx.x} * kThreads + threadIdx.x) * kEight;
  if (at >= n) return;
  const int count = in_group(at, n);
  float in[kInputs][kEight], out[kOutputs][kEight];
#pragma unroll
  for (int k = 0; k < kInputs; k++) load8(operands.in[k] + at, count, wide, in[k]);
#pragma unroll
  for (int i = 0; i < kEight; i++) {
    float x[kInputs], y[kOutputs];
#pragma unroll
    for (int k = 0; k < kInputs; k++) x[k] = in[k][i];
    body(x, y);
#pragma unroll
    for (int k = 0; k < kOutputs; k++) out[k][i] = y[k];
  }
#pragma unroll
  for (int k = 0; k < kOutputs; k++) store8(operands.out[k] + at, count, wide, out[k]);
}

template <typename T, int kInputs, int kOutputs, typename F>
void elementwise(Stream& stream, const Operands<T, kInputs, kOutputs>& operands, int64_t n, bool wide,
                 const F& body) {
  stream.launch(elementwise_kernel<T, kInputs, kOutputs, F>, blocks_for(n), kThreads, 0, operands, n, wide,
                body);
}

}  // namespace steptrain::cuda
