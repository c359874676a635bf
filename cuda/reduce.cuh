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

/// The greatest `value` of the block's threads, for all of them; NaN is passed over.
template <typename T>
__device__ T block_max(T value) {
  __shared__ T found[kMostWarps];
#pragma unroll
  for (int distance = kWarp / 2; distance > 0; distance /= 2) {
    const T other = __shfl_xor_sync(0xffffffffu, value, distance);
    value = other > value ? other : value;
  }
  __syncthreads();
  if (threadIdx.x % kWarp == 0) found[threadIdx.x / kWarp] = value;
  __syncthreads();
  T most = found[0];
  for (int warp = 1; warp < static_cast<int>(blockDim.x) / kWarp; warp++)
    most = found[warp] > most ? found[warp] : most;
  return most;
}

/// Whether the running block is the last of `blocks` to come here: what the others wrote before is there.
/// `ticket` is one of Stream::ticket.
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
