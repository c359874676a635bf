// What the forward kernels of attention share on Hopper: the online softmax over tiles of 128 keys, and the order in
// which the two consumers start products.
#pragma once

#include "cuda/attention/problem.h"
#include "cuda/sm90_block.cuh"
#include "cuda/sm90_instructions.cuh"

namespace steptrain::cuda {
namespace hopper {

constexpr int kKeys = 128;
constexpr int kScores = kKeys / 2;  // per thread: a quarter of the columns of two rows

/// The running softmax of a thread's two rows: the maximum of the unscaled scores and the sum of the weights.
struct Softmax {
  float maximum[2] = {kMinimum, kMinimum}, sum[2] = {0, 0};

  /// Turns scores into weights. Earlier sums must be multiplied by `decay`.
  __device__ void make_weights(float (&scores)[kScores], float scale, float (&decay)[2]) {
#pragma unroll
    for (int half = 0; half < 2; half++) {
      float new_maximum = maximum[half];
#pragma unroll
      for (int i = 2 * half; i < kScores; i += 4)
        new_maximum = fmaxf(new_maximum, fmaxf(scores[i], scores[i + 1]));
      // Four lanes share a row.
      new_maximum = fmaxf(new_maximum, __shfl_xor_sync(0xffffffffu, new_maximum, 1));
      new_maximum = fmaxf(new_maximum, __shfl_xor_sync(0xffffffffu, new_maximum, 2));
      const float shift = new_maximum * scale;
      decay[half] = exp2_approximate((maximum[half] - new_maximum) * scale);
      maximum[half] = new_maximum;
      float total = sum[half] * decay[half];
#pragma unroll
      for (int i = 2 * half; i < kScores; i += 4)
#pragma unroll
        for (int e = 0; e < 2; e++) {
          scores[i + e] = exp2_approximate(fmaf(scores[i + e], scale, -shift));
          total += scores[i + e];
        }
      sum[half] = total;
    }
  }
};

/// The order in which the two consumers start products: 1, 2, 1, 2, …, equally often. A consumer passes the
/// turn to the other one; nobody passes the first turn, and the last one is not passed on.
struct Turns {
  int group, left;
  bool first;
  __device__ void take() {
    if (group == 2 || !first) named_barrier_sync(kConsumers + group);
    first = false;
  }
  __device__ void pass() {
    if (group == 1 || left > 1) named_barrier_arrive(kConsumers + 3 - group);
    left--;
  }
};

}  // namespace hopper
}  // namespace steptrain::cuda
