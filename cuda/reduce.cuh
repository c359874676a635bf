// Sums over a block in one fixed order: lanes by halving distance, then warps by index. Every block gives the
// same bits, whatever else the GPU does.
#pragma once

#include <cstdint>

namespace steptrain::cuda {

constexpr int kWarp = 32;
constexpr int kMaxWarps = 32;

/// Σ of `value` over the block's threads, for all of them. The block has whole warps,
/// and all threads call this.
template <typename T>
__device__ T block_sum(T value) {
  __shared__ T sums[kMaxWarps];
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

/// The largest `value` of the block's threads, for all of them. Ignores NaN.
template <typename T>
__device__ T block_max(T value) {
  __shared__ T found[kMaxWarps];
#pragma unroll
  for (int distance = kWarp / 2; distance > 0; distance /= 2) {
    const T other = __shfl_xor_sync(0xffffffffu, value, distance);
    value = other > value ? other : value;
  }
  __syncthreads();
  if (threadIdx.x % kWarp == 0) found[threadIdx.x / kWarp] = value;
  __syncthreads();
  T largest = found[0];
  for (int warp = 1; warp < static_cast<int>(blockDim.x) / kWarp; warp++)
    largest = found[warp] > largest ? found[warp] : largest;
  return largest;
}

/// Whether the running block is the last of `blocks` to arrive here: what the others wrote before is then
/// visible to it. `ticket` is one of Stream::ticket.
__device__ inline bool last_block(uint32_t* ticket, uint32_t blocks = gridDim.x) {
  __shared__ bool last;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) {
    last = atomicAdd(ticket, 1u) + 1 == blocks;
    if (last) *ticket = 0;
  }
  __syncthreads();
  __threadfence();
  return last;
}

}  // namespace steptrain::cuda
