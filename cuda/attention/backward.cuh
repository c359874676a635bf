// What the two backward kernels of attention on tensor cores share.
#pragma once

#include "cuda/attention/tile.cuh"

namespace steptrain::cuda {

constexpr int kBackwardThreads = 128;

/// Walks over tiles first, first + step … below end: fetch(at, stage), then body(at, stage) while the next
/// fetch is under way. One stage and two give the same order of work.
template <int kStages, typename Fetch, typename Body>
__device__ void pipeline(int32_t first, int32_t end, int32_t step, Fetch fetch, Body body) {
  if (kStages == 2 && first < end) fetch(first, 0);
  cp_async_commit();
  int stage = 0;
  for (int32_t at = first; at < end; at += step) {
    if constexpr (kStages == 2) {
      cp_async_wait<0>();
      __syncthreads();  // all threads see this tile, and none still reads the one before
      if (at + step < end) fetch(at + step, stage ^ 1);
      cp_async_commit();
      body(at, stage);
      stage ^= 1;
    } else {
      __syncthreads();
      fetch(at, 0);
      cp_async_commit();
      cp_async_wait<0>();
      __syncthreads();
      body(at, 0);
    }
  }
  __syncthreads();
}

}  // namespace steptrain::cuda
