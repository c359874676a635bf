// Kernels: the fibers of a block, and their barriers and warp operations.
#include <array>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "emulator.h"
#include "launch.h"

Index threadIdx, blockIdx, blockDim, gridDim;

#if !defined(__x86_64__)
#error "the emulator switches fibers on x86-64 alone"
#endif

/// Leaves the running fiber, whose stack pointer goes to *save, for the one whose stack pointer is `to`. By
/// hand, since swapcontext asks the kernel for signal masks each time.
extern "C" void emulator_switch(void** save, void* to);
asm(R"(
.text
.type emulator_switch, @function
emulator_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
)");

namespace emulator {
namespace {

constexpr size_t kStackBytes = 128 << 10;
constexpr size_t kSharedBytes = 227 << 10;  // what a block of sm_90 may have

struct Copy {
  void* to;
  const void* from;
  bool inside;
};

/// Of a box, by TMA.
struct Store {
  const char* box;
  std::vector<char> then;  // the box at the start
  std::function<void(const char*)> land;
};

struct Fiber {
  enum class State { ready, at_barrier, in_warp, early, done };
  void* stack_pointer = nullptr;
  std::unique_ptr<char[]> stack = std::make_unique<char[]>(kStackBytes);
  State state = State::done;
  int exchanges = 0;  // so far; its parity names the buffer
  const char* what = "";
  std::vector<Copy> open;
  std::deque<std::vector<Copy>> groups;
  std::vector<std::function<void()>> products;  // of the open group
  std::deque<std::vector<std::function<void()>>> product_groups;
  std::vector<Store> stores;
  std::deque<std::vector<Store>> store_groups;
  bool unfenced = false;  // has written to shared memory without a proxy fence
  bool waited = false;    // for the kernel before
  int registers = 0;      // that it has asked for
};

/// An mbarrier.
struct Phases {
  uint32_t arrivals = 0, arrived = 0;
  int64_t pending_bytes = 0;
  uint32_t ended = 0;  // phases so far
  std::vector<std::pair<uint32_t, std::function<void()>>> copies;
};

struct Warp {
  Exchange buffers[2];
};

struct NamedBarrier {
  int arrived = 0, rounds = 0;
};

}  // namespace

struct Block {
  std::map<void*, Phases> barriers;
  std::array<NamedBarrier, 16> named_barriers;
  std::deque<Fiber> fibers;
  std::vector<Warp> warps;
  const Launch* launch = nullptr;
  unsigned index = 0, threads = 0;
  bool early = false;        // the kernel before it still runs
  std::vector<char> shared;  // while that one runs
};

namespace {

std::shared_ptr<Block> block;               // the running one
std::vector<std::shared_ptr<Block>> spare;  // their stacks are used again
void* scheduler = nullptr;                  // its stack pointer
alignas(1024) char shared[kSharedBytes];

Fiber& running() {
  return block->fibers[threadIdx.x];
}

void yield(Fiber::State state) {
  Fiber& self = running();
  const unsigned index = threadIdx.x;
  self.state = state;
  emulator_switch(&self.stack_pointer, scheduler);
  threadIdx.x = index;
}

void fiber_main() {
  block->launch->kernel();
  if (block->launch->early && !running().waited) forbid("a thread that ends without a wait for the kernel before it");
  if (!running().stores.empty() || !running().store_groups.empty())
    forbid("a thread that ends before its stores have read shared memory");
  running().state = Fiber::State::done;
  emulator_switch(&running().stack_pointer, scheduler);
}

void resume(unsigned index) {
  Fiber& fiber = block->fibers[index];
  fiber.state = Fiber::State::ready;
  threadIdx.x = index;
  emulator_switch(&scheduler, fiber.stack_pointer);
}

/// Releases the warps whose lanes have all reached the same operation.
bool release_warps(unsigned threads) {
  auto& fibers = block->fibers;
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
  auto& fibers = block->fibers;
  bool any = false;
  for (unsigned i = 0; i < threads; i++) {
    if (fibers[i].state == Fiber::State::in_warp || fibers[i].state == Fiber::State::early) return false;
    any = any || fibers[i].state == Fiber::State::at_barrier;
  }
  for (unsigned i = 0; any && i < threads; i++) {
    if (fibers[i].state == Fiber::State::at_barrier) fibers[i].state = Fiber::State::ready;
  }
  return any;
}

void begin(Fiber& fiber) {
  // emulator_switch pops six registers and the address to continue at. There, as at any
  // function's start, the stack pointer lies 8 bytes past a multiple of 16.
  auto* top = reinterpret_cast<uintptr_t*>((reinterpret_cast<uintptr_t>(fiber.stack.get()) + kStackBytes) / 16 * 16);
  *--top = 0;
  *--top = reinterpret_cast<uintptr_t>(&fiber_main);
  for (int i = 0; i < 6; i++) *--top = 0;
  fiber.stack_pointer = top;
  fiber.state = Fiber::State::ready;
  fiber.exchanges = 0;
  fiber.open.clear();
  fiber.groups.clear();
  fiber.products.clear();
  fiber.product_groups.clear();
  fiber.unfenced = fiber.waited = false;
  fiber.registers = 0;
}

/// Makes a block of a launch the running one.
void enter(std::shared_ptr<Block> entered) {
  block = std::move(entered);
  blockIdx.x = block->index;
  blockDim.x = block->threads;
  gridDim.x = block->launch->config.gridDim.x;
}

std::shared_ptr<Block> new_block(const Launch& launch) {
  const unsigned threads = launch.config.blockDim.x;
  if (threads == 0 || threads > 1024 || threads % kLanes != 0)
    forbid("a block that is not 1 to 32 whole warps");
  if (launch.config.dynamicSmemBytes > kSharedBytes) forbid("more shared memory than a block may have");
  std::shared_ptr<Block> made = std::make_shared<Block>();
  if (!spare.empty()) {
    made = std::move(spare.back());
    spare.pop_back();
  }
  while (made->fibers.size() < threads) made->fibers.emplace_back();
  made->warps.resize(threads / kLanes);
  made->launch = &launch;
  made->threads = threads;
  return made;
}

/// Starts block `index`.
void begin_block(unsigned index) {
  block->index = blockIdx.x = index;
  block->barriers.clear();
  block->named_barriers.fill({});
  for (unsigned i = 0; i < block->threads; i++) begin(block->fibers[i]);
  std::memset(shared, 0xff, block->launch->config.dynamicSmemBytes);
}

/// Runs the block to its end, or to its waits for the kernel before.
void run_block() {
  const unsigned threads = block->threads;
  auto& fibers = block->fibers;
  for (bool ascending = true;; ascending = !ascending) {
    bool ran = false;
    for (unsigned step = 0; step < threads; step++) {
      const unsigned i = ascending ? step : threads - 1 - step;
      if (fibers[i].state != Fiber::State::ready) continue;
      resume(i);
      ran = true;
    }
    // Warps continue even while other threads poll an mbarrier.
    const bool released = release_warps(threads);
    if (ran || released || release_barrier(threads)) continue;
    for (unsigned i = 0; i < threads && !block->early; i++) {
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

void start_kernel(Launch& launch) {
  if (launch.config.gridDim.x == 0) return;
  enter(launch.started = new_block(launch));
  block->early = true;
  begin_block(launch.config.gridDim.x - 1);
  run_block();
  block->shared.assign(shared, shared + launch.config.dynamicSmemBytes);
}

void run_kernel(Launch& launch) {
  unsigned left = launch.config.gridDim.x;
  if (left == 0) return;
  if (launch.started) {
    enter(std::exchange(launch.started, nullptr));
    block->early = false;
    std::memcpy(shared, block->shared.data(), block->shared.size());
    for (unsigned i = 0; i < block->threads; i++) {
      Fiber& fiber = block->fibers[i];
      if (fiber.state == Fiber::State::early) fiber.state = Fiber::State::ready;
    }
    run_block();
    left--;
  } else {
    enter(new_block(launch));
  }
  while (left-- > 0) {
    begin_block(left);
    run_block();
  }
  spare.push_back(std::exchange(block, nullptr));
}

void wait_for_predecessor() {
  Fiber& self = running();
  self.waited = true;
  if (block->early) yield(Fiber::State::early);
}

namespace {

Phases& phases_of(void* barrier) {
  const auto found = block->barriers.find(barrier);
  if (found == block->barriers.end()) forbid("an mbarrier that was not initialised");
  return found->second;
}

void end_phase_if_complete(Phases& phases) {
  if (phases.arrived < phases.arrivals || phases.pending_bytes != 0) return;
  phases.arrived = 0;
  phases.ended++;
}

}  // namespace

void mbarrier_init(void* barrier, uint32_t arrivals) {
  block->barriers[barrier] = {arrivals, 0, 0, 0, {}};
}

void mbarrier_arrive(void* barrier, uint32_t expected_bytes) {
  Phases& phases = phases_of(barrier);
  if (phases.arrived == phases.arrivals) forbid("one arrival too many at an mbarrier");
  phases.pending_bytes += expected_bytes;
  phases.arrived++;
  end_phase_if_complete(phases);
}

void mbarrier_wait(void* barrier, uint32_t parity) {
  for (int polls = 0;; polls++) {
    Phases& phases = phases_of(barrier);
    // After an even number of phases, the last one had parity 1.
    if ((phases.ended + 1) % 2 == parity) return;
    for (const auto& [bytes, copy] : std::exchange(phases.copies, {})) {
      copy();
      phases.pending_bytes -= bytes;
    }
    end_phase_if_complete(phases);
    if (polls > 100'000) forbid("an mbarrier that nobody completes");
    yield(Fiber::State::ready);
  }
}

void start_box(void* barrier, uint32_t bytes, std::function<void()> copy) {
  phases_of(barrier).copies.emplace_back(bytes, std::move(copy));
}

void start_product(std::function<void()> product) {
  running().products.push_back(std::move(product));
}

void wgmma_commit() {
  Fiber& self = running();
  self.product_groups.push_back(std::exchange(self.products, {}));
}

void wgmma_wait(int pending) {
  auto& groups = running().product_groups;
  while (groups.size() > static_cast<size_t>(pending)) {
    for (const auto& product : groups.front()) product();
    groups.pop_front();
  }
}

void start_store(const void* box, int64_t bytes, std::function<void(const char*)> store) {
  for (unsigned i = 0; i < blockDim.x; i++) {
    if (block->fibers[i].unfenced && i / 128 == threadIdx.x / 128) forbid("a store of what no fence has made visible");
  }
  const char* from = static_cast<const char*>(box);
  running().stores.push_back({from, std::vector<char>(from, from + bytes), std::move(store)});
}

void tma_store_commit() {
  Fiber& self = running();
  self.store_groups.push_back(std::exchange(self.stores, {}));
}

void tma_store_wait_read(int pending) {
  auto& groups = running().store_groups;
  while (groups.size() > static_cast<size_t>(pending)) {
    for (const Store& store : groups.front()) {
      if (std::memcmp(store.box, store.then.data(), store.then.size()) != 0)
        forbid("shared memory that changes while a store may read it");
      store.land(store.then.data());
    }
    groups.pop_front();
  }
}

void write_unfenced() {
  running().unfenced = true;
}

void fence_proxy_async() {
  running().unfenced = false;
}

void set_registers(int registers) {
  running().registers = registers;
  constexpr int kRegisters = 65536, kUnit = 8;  // of a multiprocessor; those of a thread come in units
  const int threads = static_cast<int>(block->threads), launched = kRegisters / threads / kUnit * kUnit * threads;
  int asked = 0;
  for (int i = 0; i < threads; i++) asked += block->fibers[static_cast<size_t>(i)].registers;
  if (asked > launched) forbid("setmaxnreg for more registers than the launch has");
}

char* shared_base() {
  return shared;
}

void* dynamic_shared() {
  return shared;
}

void block_barrier() {
  yield(Fiber::State::at_barrier);
}

void named_barrier_arrive(int id, int threads) {
  NamedBarrier& barrier = block->named_barriers.at(static_cast<size_t>(id));
  if (++barrier.arrived < threads) return;
  barrier.arrived = 0;
  barrier.rounds++;
}

void warpgroup_barrier(int id, int threads) {
  NamedBarrier& barrier = block->named_barriers.at(static_cast<size_t>(id));
  const int round = barrier.rounds;
  named_barrier_arrive(id, threads);
  for (int polls = 0; barrier.rounds == round; polls++) {
    if (polls > 100'000) forbid("a named barrier to which not all come");
    yield(Fiber::State::ready);
  }
}

const Exchange& exchange(const char* what, const void* bytes, int size) {
  if (size > kMaxBytes) forbid("too large a value to exchange");
  Fiber& self = running();
  Exchange& buffer = block->warps[threadIdx.x / kLanes].buffers[self.exchanges++ % 2];
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

void cp_async_commit() {
  Fiber& self = running();
  self.groups.push_back(std::move(self.open));
  self.open.clear();
}

void cp_async_wait(int pending) {
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
