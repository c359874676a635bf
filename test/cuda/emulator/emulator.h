// Runs the kernels of cuda/ on the CPU, so that their index arithmetic, barriers and use of the runtime can
// be tested where there is no GPU. It has neither the speed of a GPU nor all of its memory model, and its mma is this
// project's own reading of the PTX manual.
//   threads   of a block are fibers of one thread; they switch at barriers, at operations of a whole warp and where they wait.
//             Passes alternate between ascending and descending order, which reveals missing barriers.
//   blocks    Three of a launch run at a time, by turns, each on a thread of the CPU of its own; the last ones begin. What
//             a block writes to the GPU's memory others see after a fence of its own, or at the end of the launch.
//   streams   queue their work and run it at a wait, which reveals arguments that were freed too early.
//   memory    is filled with NaN when it is allocated and freed, and as dynamic shared memory.
//   copies    of cp.async happen at their start or at the wait for them.
//   early     A kernel that may start before the one in front of it has ended does so: the first of its blocks that runs goes
//             as far as its waits for that one, which reveals what it reads too early. Every thread must wait. Before, a
//             block may use dynamic shared memory, not static. Later blocks start in their turn.
// What Hopper does beside its threads (async.cc) happens as STEPTRAIN_EMULATED_ASYNC says: `now`, as soon as it may; `late`,
// when nobody in the block can go on without it; or, else, at random by STEPTRAIN_EMULATED_SEED, which is also that of
// the turns of blocks.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "cuda_runtime_api.h"

#define __host__
#define __device__
#define __global__
#define __shared__ static thread_local
#define __grid_constant__
#define __launch_bounds__(...)

struct float2 {
  float x, y;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
struct alignas(16) uint4 {
  uint32_t x, y, z, w;
};
inline float2 make_float2(float x, float y) {
  return {x, y};
}
inline float4 make_float4(float x, float y, float z, float w) {
  return {x, y, z, w};
}
inline uint4 make_uint4(uint32_t x, uint32_t y, uint32_t z, uint32_t w) {
  return {x, y, z, w};
}

/// Indices of the running thread.
struct Index {
  unsigned x;
};
extern Index threadIdx, blockIdx, blockDim, gridDim;

namespace emulator {

cudaError_t launch(const cudaLaunchConfig_t& config, std::function<void()> kernel);
/// griddepcontrol.wait.
void wait_for_predecessor();

void* dynamic_shared();
void block_barrier();
/// A barrier of `threads` threads with the same `id`.
void warpgroup_barrier(int id, int threads);
/// Arrives at that barrier without waiting.
void named_barrier_arrive(int id, int threads);

constexpr int kLanes = 32;
constexpr int kMaxBytes = 40;
/// The values that all lanes of the running thread's warp passed; waits for all of them. `what` names the operation,
/// which must be the same for all.
struct Exchange {
  char bytes[kLanes][kMaxBytes];
};
const Exchange& exchange(const char* what, const void* bytes, int size);

/// cp.async of 16 bytes; at the latest done by the next wait that allows fewer pending groups.
void start_copy(void* to, const void* from, bool inside);
void cp_async_commit();
void cp_async_wait(int pending);

/// mbarriers, by their address in shared memory; forgotten at the end of a block. Others may use one once a fence of the
/// thread that initialised it and a barrier of the block have passed.
void mbarrier_init(void* barrier, uint32_t arrivals);
void fence_barrier_init();
void mbarrier_arrive(void* barrier, uint32_t expected_bytes);
void mbarrier_wait(void* barrier, uint32_t parity);
/// A copy by TMA to `bytes` from `to` on, which `barrier` counts. No product under way may read them, and no ordinary write
/// may lie there that no fence has ordered.
void start_box(void* to, void* barrier, uint32_t bytes, std::function<void()> copy);

/// The factors of a product of a warp, which all of its lanes start: a[16][16] and b[16][columns].
struct Factors {
  float a[16][16];
  std::vector<float> b;
  std::vector<std::pair<const char*, std::array<char, 16>>> read;  // chunks of shared memory as they were at the start
  int left = kLanes;  // lanes that have not waited for it
};
/// Makes them for the first lane that asks; `make` adds what it reads to `read`.
std::shared_ptr<Factors> factors_of(const std::function<void(Factors&)>& make);
void read_chunk(Factors& factors, const void* at);
/// A product that `add` adds to `count` sums. Until the thread has waited for its group, the sums are NaN, and neither they
/// nor the factors may change. fresh: whatever the sums hold. They must be ordered by wgmma.fence, unless products under
/// way add to them.
void start_product(float* sums, int count, bool fresh, std::shared_ptr<Factors> factors,
                   std::function<void(float*)> add);
void wgmma_fence();
void wgmma_commit();
void wgmma_wait(int pending);
/// A copy by TMA out of shared memory. At the wait for its group `store` gets the box as it was at the start.
/// Changes in between, writes that no fence and barrier made visible to TMA, and a thread that ends before it waits are
/// forbidden.
void start_store(const void* box, int64_t bytes, std::function<void(const char*)> store);
void tma_store_commit();
void tma_store_wait_read(int pending);
/// An ordinary write to shared memory by an instruction; those of C++ are noted by the compiler's instrumentation.
void note_write(void* at, size_t bytes);
void fence_proxy_async();

/// Between blocks.
void thread_fence();
int compare_and_swap(int* at, int expected, int value);
uint32_t add_to(uint32_t* at, uint32_t value);
void release_count(uint32_t* count, uint32_t value);
/// Runs other blocks until *count is `wanted`.
void await_count(const uint32_t* count, uint32_t wanted);
/// setmaxnreg: what all threads ask for must fit into what the launch has, else a warpgroup waits for ever.
void set_registers(int registers);
/// The start of dynamic shared memory, for descriptors.
char* shared_base();

/// Ends the process with a message: the kernel did what CUDA forbids.
[[noreturn]] void forbid(const char* what);

template <typename T>
T lane_value(const Exchange& from, int lane) {
  T value;
  std::memcpy(&value, from.bytes[lane], sizeof value);
  return value;
}

}  // namespace emulator

inline void __syncthreads() {
  emulator::block_barrier();
}
inline int __syncthreads_and(int predicate) {
  static thread_local bool failed = false;  // of the running block, which has its CPU thread
  if (!predicate) failed = true;
  emulator::block_barrier();
  const bool holds = !failed;
  emulator::block_barrier();
  failed = false;
  emulator::block_barrier();
  return holds;
}
inline void __syncwarp() {
  emulator::exchange("syncwarp", nullptr, 0);
}
inline void __threadfence_system() {}
inline void __threadfence() {
  emulator::thread_fence();
}

template <typename T>
T __shfl_xor_sync(unsigned, T value, int mask) {
  const auto& all = emulator::exchange("shfl.xor", &value, sizeof value);
  return emulator::lane_value<T>(all, static_cast<int>(threadIdx.x % 32) ^ mask);
}
template <typename T>
T __shfl_up_sync(unsigned, T value, int distance) {
  const auto& all = emulator::exchange("shfl.up", &value, sizeof value);
  const int lane = static_cast<int>(threadIdx.x % 32);
  return emulator::lane_value<T>(all, lane >= distance ? lane - distance : lane);
}
template <typename T>
T __shfl_sync(unsigned, T value, int lane) {
  return emulator::lane_value<T>(emulator::exchange("shfl", &value, sizeof value), lane);
}
inline bool __all_sync(unsigned, bool holds) {
  const auto& all = emulator::exchange("all", &holds, sizeof holds);
  for (int lane = 0; lane < emulator::kLanes; lane++) {
    if (!emulator::lane_value<bool>(all, lane)) return false;
  }
  return true;
}
inline uint32_t __ballot_sync(unsigned, bool holds) {
  const auto& all = emulator::exchange("ballot", &holds, sizeof holds);
  uint32_t bits = 0;
  for (int lane = 0; lane < emulator::kLanes; lane++)
    bits |= static_cast<uint32_t>(emulator::lane_value<bool>(all, lane)) << lane;
  return bits;
}
inline int __popc(uint32_t bits) {
  return __builtin_popcount(bits);
}
inline int atomicCAS(int* at, int expected, int value) {
  return emulator::compare_and_swap(at, expected, value);
}
inline uint32_t atomicAdd(uint32_t* at, uint32_t value) {
  return emulator::add_to(at, value);
}
inline uint32_t __float_as_uint(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}
inline float __uint_as_float(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}
