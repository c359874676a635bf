// Sums over a block in one fixed order: lanes by halving distance, then warps by index. The same bits for
// every block, whatever else the GPU does.
#pragma once

#include <cstdint>

namespace steptrain::cuda {

constexpr int kWarp = 32;
constexpr int kMostWarps = 32;

/// Σ of `value` over the block's threads, for all of them. The block has whole warps, all of which call this.
template <typename T>
__device__ T block_sum(T value) {
  __shared__ T sums[kMostWarps];
#pragma unroll
  for (int distance = kWarp / 2; distance > 0; distance /= 2)
    value += __shfl_xor_sync(0xffffffffu, value, distance);
  __syncthreads();  // an earlier call may still be reading
  if (threadIdx.x % kWarp == 0) sums[threadIdx.x / kWarp] = value;
  __syncthreads();
  T total = sums[0];
  for (int warp = 1; warp < static_cast<int>(blockDim.x) / kWarp; warp++) total += sums[warp];
  return total;
}

}  // namespace steptrain::cuda
