// Kernels: the fibers of a block, and what they do together.
#include <ucontext.h>

#include <cstdio>
#include <cstdlib>
#include <deque>
#include <memory>
#include <vector>

#include "emulator.h"

Index threadIdx, blockIdx, blockDim, gridDim;

namespace emulator {
namespace {

constexpr size_t kStackBytes = 128 << 10;
constexpr size_t kSharedBytes = 227 << 10;  // what a block of sm_90 may have

struct Copy {
  void* to;
  const void* from;
  bool inside;
};

struct Fiber {
  enum class State { ready, at_barrier, in_warp, done };
  ucontext_t context;
  std::unique_ptr<char[]> stack = std::make_unique<char[]>(kStackBytes);
  State state = State::done;
  int exchanges = 0;  // so far; its parity names the buffer
  const char* what = "";
  std::vector<Copy> open;
  std::deque<std::vector<Copy>> groups;
};

struct Warp {
  Exchange buffers[2];
};

std::deque<Fiber> fibers;
std::vector<Warp> warps;
ucontext_t scheduler;
const std::function<void()>* body;
alignas(1024) char shared[kSharedBytes];

Fiber& running() {
  return fibers[threadIdx.x];
}

void yield(Fiber::State state) {
  Fiber& self = running();
  const unsigned index = threadIdx.x;
  self.state = state;
  swapcontext(&self.context, &scheduler);
  threadIdx.x = index;
}

void fiber_main() {
  (*body)();
  running().state = Fiber::State::done;
  swapcontext(&running().context, &scheduler);
}

void resume(unsigned index) {
  Fiber& fiber = fibers[index];
  fiber.state = Fiber::State::ready;
  threadIdx.x = index;
  swapcontext(&scheduler, &fiber.context);
}

/// Lets go of the warps whose every lane has come to the same operation.
bool release_warps(unsigned threads) {
  bool any = false;
  for (unsigned first = 0; first < threads; first += kLanes) {
    bool all = true;
    for (unsigned i = first; i < first + kLanes; i++) all = all && fibers[i].state == Fiber::State::in_warp;
    if (!all) continue;
    for (unsigned i = first; i < first + kLanes; i++) {
      if (std::strcmp(fibers[i].what, fibers[first].what) != 0)
        forbid("lanes of a warp in different operations");
      fibers[i].state = Fiber::State::ready;
    }
    any = true;
  }
  return any;
}

bool release_barrier(unsigned threads) {
  bool any = false;
  for (unsigned i = 0; i < threads; i++) {
    if (fibers[i].state == Fiber::State::in_warp) return false;
    any = any || fibers[i].state == Fiber::State::at_barrier;
  }
  for (unsigned i = 0; any && i < threads; i++) {
    if (fibers[i].state == Fiber::State::at_barrier) fibers[i].state = Fiber::State::ready;
  }
  return any;
}

void begin(Fiber& fiber) {
  getcontext(&fiber.context);
  fiber.context.uc_stack.ss_sp = fiber.stack.get();
  fiber.context.uc_stack.ss_size = kStackBytes;
  fiber.context.uc_link = nullptr;
  makecontext(&fiber.context, fiber_main, 0);
  fiber.state = Fiber::State::ready;
  fiber.exchanges = 0;
  fiber.open.clear();
  fiber.groups.clear();
}

void run_block(unsigned threads) {
  for (unsigned i = 0; i < threads; i++) begin(fibers[i]);
  for (bool ascending = true;; ascending = !ascending) {
    bool ran = false;
    for (unsigned step = 0; step < threads; step++) {
      const unsigned i = ascending ? step : threads - 1 - step;
      if (fibers[i].state != Fiber::State::ready) continue;
      resume(i);
      ran = true;
    }
    if (ran || release_warps(threads) || release_barrier(threads)) continue;
    for (unsigned i = 0; i < threads; i++) {
      if (fibers[i].state != Fiber::State::done) forbid("threads that wait for others that never come");
    }
    return;
  }
}

}  // namespace

void forbid(const char* what) {
  std::fprintf(stderr, "emulated kernel, block %u, thread %u: %s\n", blockIdx.x, threadIdx.x, what);
  std::abort();
}

/// Called with the emulator's lock held.
void run_kernel(const cudaLaunchConfig_t& config, const std::function<void()>& kernel) {
  const unsigned threads = config.blockDim.x;
  if (threads == 0 || threads > 1024 || threads % kLanes != 0)
    forbid("a block that is not 1 to 32 whole warps");
  if (config.dynamicSmemBytes > kSharedBytes) forbid("more shared memory than a block may have");
  while (fibers.size() < threads) fibers.emplace_back();
  warps.resize(threads / kLanes);
  body = &kernel;
  blockDim.x = threads;
  gridDim.x = config.gridDim.x;
  for (unsigned block = config.gridDim.x; block-- > 0;) {
    blockIdx.x = block;
    std::memset(shared, 0xff, config.dynamicSmemBytes);
    run_block(threads);
  }
}

void* dynamic_shared() {
  return shared;
}

void block_barrier() {
  yield(Fiber::State::at_barrier);
}

const Exchange& exchange(const char* what, const void* bytes, int size) {
  if (size > kMostBytes) forbid("too large a value to exchange");
  Fiber& self = running();
  Exchange& buffer = warps[threadIdx.x / kLanes].buffers[self.exchanges++ % 2];
  std::memcpy(buffer.bytes[threadIdx.x % kLanes], bytes, static_cast<size_t>(size));
  self.what = what;
  yield(Fiber::State::in_warp);
  return buffer;
}

void start_copy(void* to, const void* from, bool inside) {
  if (reinterpret_cast<uintptr_t>(to) % 16 != 0 || reinterpret_cast<uintptr_t>(from) % 16 != 0)
    forbid("cp.async at an address that is not 16-byte aligned");
  running().open.push_back({to, from, inside});
}

void commit_copies() {
  Fiber& self = running();
  self.groups.push_back(std::move(self.open));
  self.open.clear();
}

void wait_for_copies(int pending) {
  auto& groups = running().groups;
  while (groups.size() > static_cast<size_t>(pending)) {
    for (const Copy& copy : groups.front()) {
      if (copy.inside) {
        std::memcpy(copy.to, copy.from, 16);
      } else {
        std::memset(copy.to, 0, 16);
      }
    }
    groups.pop_front();
  }
}

}  // namespace emulator
