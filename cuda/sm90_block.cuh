// How Hopper's kernels divide a block into three warpgroups: the first loads tiles by TMA into a ring of
// stages in shared memory; the other two, the consumers, take 64 rows each.
#pragma once

#include <cstdint>

#include "cuda/fragments.h"
#include "cuda/instructions.cuh"

namespace steptrain::cuda {
namespace hopper {

constexpr int kGroup = 128;  // threads of a warpgroup
constexpr int kConsumers = 2;
constexpr int kConsumerWarps = kConsumers * kGroup / 32;
constexpr int kThreads = kGroup * (1 + kConsumers);
constexpr int kGroupRows = 64;  // of a consumer
constexpr int kStep = 16;       // depth of one wgmma

/// Whether dynamic shared memory leaves room for static variables, barriers and the like: a block may have 227 KiB of
/// both together.
constexpr bool fits_in_shared(int dynamic) {
  constexpr int kMost = 227 << 10, kStatic = 512;
  return dynamic + kStatic <= kMost;
}

/// Row of the running thread's first accumulators among the 64 of its consumer.
__device__ inline int own_row() {
  const int thread = static_cast<int>(threadIdx.x) % kGroup;
  return thread / 32 * 16 + fragment_row(thread % 32, 0);
}

/// A place in a ring of stages, with the parity of its barriers' phases, which alternates every round.
template <int kStages>
struct RingPlace {
  int stage = 0;
  uint32_t parity = 0;
  __device__ void advance() {
    if (++stage < kStages) return;
    stage = 0;
    parity ^= 1;
  }
};

/// Dynamic shared memory from its first multiple of 1024 bytes, to which the swizzle of TMA and wgmma refers.
__device__ inline char* aligned_shared() {
  return reinterpret_cast<char*>((reinterpret_cast<uintptr_t>(dynamic_shared()) + 1023) / 1024 * 1024);
}

}  // namespace hopper
}  // namespace steptrain::cuda
