// Kernels: the blocks of a launch, the fibers of a block, and their barriers and warp operations.
#include <cstdio>
#include <cstdlib>
#include <semaphore>
#include <string_view>
#include <thread>
#include <utility>

#include "block.h"

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

std::shared_ptr<Block> block;
thread_local bool runs_blocks = false;

namespace {

constexpr int kPatience = 200'000;          // passes in which nobody can go on
std::vector<std::shared_ptr<Block>> spare;  // their stacks are used again

/// Blocks of a launch that run by turns.
unsigned most_resident() {
  static const char* const text = std::getenv("STEPTRAIN_EMULATED_BLOCKS");
  return text ? static_cast<unsigned>(std::atoi(text)) : 3;
}

uint64_t seed() {
  const char* text = std::getenv("STEPTRAIN_EMULATED_SEED");
  return text ? std::strtoull(text, nullptr, 10) : 1;
}
/// Splitmix64.
uint64_t random_bits() {
  static uint64_t state = seed() * 0x9e3779b97f4a7c15;
  uint64_t z = state += 0x9e3779b97f4a7c15;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
  z = (z ^ z >> 27) * 0x94d049bb133111eb;
  return z ^ z >> 31;
}

/// Blocks of a launch that run by turns, each on a thread of its own, of which one runs at a time.
struct Turns {
  struct Resident {
    std::binary_semaphore turn{0};
    bool running = true;
  };
  Launch& launch;
  unsigned left;  // blocks that have not begun
  std::deque<Resident> residents{1};
  std::vector<std::shared_ptr<Block>> blocks{};
  std::vector<std::thread> threads{};
};
thread_local Turns* turns = nullptr;
thread_local Turns::Resident* resident = nullptr;

/// Makes a block the running one.
void enter(const std::shared_ptr<Block>& entered) {
  block = entered;
  blockIdx.x = block->index;
  blockDim.x = block->threads;
  gridDim.x = block->launch->config.gridDim.x;
}

/// What Hopper does beside its threads happens as STEPTRAIN_EMULATED_ASYNC says, else at random.
std::string_view known_way() {
  static const char* const way = std::getenv("STEPTRAIN_EMULATED_ASYNC");
  static const std::string_view known = way ? way : "";
  return known == "now" || known == "late" ? known : "";
}

constexpr unsigned kSleep = 512;  // passes at most

/// At random a warp lets others go on for a while: at its start and after a barrier of the block, where nothing holds it back, and
/// sometimes later.
void send_to_sleep(Warp& warp, unsigned chances) {
  if (known_way().empty() && random_bits() % chances == 0) warp.asleep = random_bits() % kSleep;
}

std::shared_ptr<Block> new_block(const Launch& launch);
char* memory_of_thread();
void run_blocks(Turns& all, Turns::Resident& self, const std::shared_ptr<Block>& own);

/// Lets another block of the launch run, perhaps one that has not begun, and comes back unless this one has `ended`.
void pass_turn(bool ended = false) {
  if (!turns) return;
  Turns& all = *turns;
  Turns::Resident* const self = resident;
  std::vector<Turns::Resident*> others;
  for (Turns::Resident& other : all.residents)
    if (&other != self && other.running) others.push_back(&other);
  const bool begins = !ended && all.left > 0 && all.residents.size() < most_resident();
  if (others.empty() && !begins) return;
  const std::shared_ptr<Block> own = block;
  if (!ended) hide_writes();
  const size_t chosen = random_bits() % (others.size() + (begins ? 1 : 0));
  if (chosen < others.size()) {
    others[chosen]->turn.release();
  } else {
    Turns::Resident& added = all.residents.emplace_back();
    all.blocks.push_back(new_block(all.launch));
    all.threads.emplace_back([&all, &added, made = all.blocks.back()] {
      added.turn.acquire();
      made->shared = memory_of_thread();
      run_blocks(all, added, made);
    });
    added.turn.release();
  }
  if (ended) return;
  self->turn.acquire();
  enter(own);
  show_writes();
}

void yield(Fiber::State state) {
  Fiber& self = running();
  const unsigned index = threadIdx.x;
  self.state = state;
  emulator_switch(&self.stack_pointer, block->scheduler);
  threadIdx.x = index;
}

void fiber_main() {
  block->launch->kernel();
  if (block->launch->early && !running().waited) forbid("a thread that ends without a wait for the kernel before it");
  if (!running().stores.empty() || !running().store_groups.empty())
    forbid("a thread that ends before its stores have read shared memory");
  if (!running().products.empty() || !running().product_groups.empty())
    forbid("a thread that ends before its products");
  running().state = Fiber::State::done;
  emulator_switch(&running().stack_pointer, block->scheduler);
}

void resume(unsigned index) {
  Fiber& fiber = block->fibers[index];
  fiber.state = Fiber::State::ready;
  threadIdx.x = index;
  emulator_switch(&block->scheduler, fiber.stack_pointer);
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
  if (!any) return false;
  for (unsigned i = 0; i < threads; i++) {
    if (fibers[i].state == Fiber::State::at_barrier) fibers[i].state = Fiber::State::ready;
  }
  block->barriers_passed++;
  join_writes();
  for (Warp& warp : block->warps) send_to_sleep(warp, 8);
  return true;
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
  fiber.accumulators.clear();
  fiber.written.clear();
  fiber.fenced.clear();
  fiber.unseen.clear();
  fiber.ordered = fiber.waited = fiber.polling = false;
  fiber.registers = 0;
}

/// Dynamic shared memory of blocks that do not have a thread of their own. It has one place, which kernels keep.
char* memory_of_main() {
  alignas(1024) static char memory[kSharedBytes];
  return memory;
}
/// That of the others, at one place for each thread.
char* memory_of_thread() {
  constexpr size_t kWhole = (kSharedBytes + 1023) / 1024 * 1024;
  static thread_local const std::unique_ptr<char, decltype(&std::free)> memory(
      static_cast<char*>(std::aligned_alloc(1024, kWhole)), &std::free);
  return memory.get();
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
  made->early = false;
  made->shared = memory_of_main();
  made->writers.assign(kSharedWords, 0);
  return made;
}

/// Starts block `index`.
void begin_block(unsigned index) {
  block->index = blockIdx.x = index;
  block->barriers.clear();
  block->named_barriers.fill({});
  block->barriers_passed = 0;
  block->stuck = block->yields = false;
  block->idle = 0;
  block->unseen.clear();
  for (Warp& warp : block->warps) {
    warp.factors_at = -1;
    warp.asleep = 0;
    send_to_sleep(warp, 4);
  }
  for (unsigned i = 0; i < block->threads; i++) begin(block->fibers[i]);
  std::memset(block->shared, 0xff, block->launch->config.dynamicSmemBytes);
  std::fill(block->writers.begin(), block->writers.end(), 0);
}

/// Runs the block to its end, or to its waits for the kernel before.
void run_block() {
  const unsigned threads = block->threads;
  auto& fibers = block->fibers;
  constexpr int kNap = 16;
  int waits = 0;  // passes in a row in which nobody but those that stand still could go on
  for (bool ascending = true;; ascending = !ascending) {
    bool ran = false, polled = false, asleep = false;
    for (Warp& warp : block->warps) {
      if (warp.asleep > 0) {
        warp.asleep--;
      } else {
        send_to_sleep(warp, 1024);
      }
    }
    for (unsigned step = 0; step < threads; step++) {
      const unsigned i = ascending ? step : threads - 1 - step;
      if (fibers[i].state != Fiber::State::ready) continue;
      if (block->warps[i / kLanes].asleep > 0) {
        asleep = true;
        continue;
      }
      resume(i);
      (std::exchange(fibers[i].polling, false) ? polled : ran) = true;
    }
    // Warps continue even while other threads wait in poll().
    const bool released = release_warps(threads);
    waits = asleep && !ran && !released ? waits + 1 : 0;
    if (waits > kNap) // the others wait, perhaps for those that stand still
      for (Warp& warp : block->warps) warp.asleep = 0;
    if (waits > 0) continue;
    if (ran || released || (!polled && release_barrier(threads))) {
      block->stuck = false;
      block->idle = 0;
      if (std::exchange(block->yields, false) || random_bits() % 64 == 0) pass_turn();
      continue;
    }
    if (polled) {
      block->stuck = true;
      block->idle++;
      if (std::exchange(block->yields, false)) pass_turn();
      continue;
    }
    for (unsigned i = 0; i < threads && !block->early; i++) {
      if (fibers[i].state != Fiber::State::done) forbid("threads that wait for others that never come");
    }
    break;
  }
  if (block->early) return;
  for (const auto& [barrier, phases] : block->barriers)
    if (!phases.copies.empty()) forbid("a block that ends before its copies");
  end_writes();
}

/// Runs blocks until none is left.
void run_blocks(Turns& all, Turns::Resident& self, const std::shared_ptr<Block>& own) {
  turns = &all;
  resident = &self;
  runs_blocks = true;
  while (all.left > 0) {
    enter(own);
    begin_block(--all.left);
    run_block();
  }
  self.running = false;
  pass_turn(true);
  turns = nullptr;
  runs_blocks = false;
}

}  // namespace

void forbid(const char* what) {
  std::fprintf(stderr, "emulated kernel, block %u, thread %u, seed %llu: %s\n", blockIdx.x, threadIdx.x,
               static_cast<unsigned long long>(seed()), what);
  std::abort();
}

void start_kernel(Launch& launch) {
  if (launch.config.gridDim.x == 0) return;
  enter(launch.started = new_block(launch));
  block->early = runs_blocks = true;
  begin_block(launch.config.gridDim.x - 1);
  run_block();
  block->kept.assign(block->shared, block->shared + launch.config.dynamicSmemBytes);
  runs_blocks = false;
}

void run_kernel(Launch& launch) {
  Turns all{launch, launch.config.gridDim.x};
  if (all.left == 0) return;
  if (launch.started) {
    enter(std::exchange(launch.started, nullptr));
    block->early = false;
    std::memcpy(block->shared, block->kept.data(), block->kept.size());
    for (unsigned i = 0; i < block->threads; i++) {
      Fiber& fiber = block->fibers[i];
      if (fiber.state == Fiber::State::early) fiber.state = Fiber::State::ready;
    }
    runs_blocks = true;
    run_block();
    all.left--;
  } else {
    enter(new_block(launch));
  }
  all.blocks.push_back(block);
  run_blocks(all, all.residents[0], std::shared_ptr<Block>(block));
  for (std::thread& thread : all.threads) thread.join();
  settle_writes();
  block = nullptr;
  for (auto& own : all.blocks) spare.push_back(std::move(own));
}

Fiber& running() {
  return block->fibers[threadIdx.x];
}

void poll(const char* otherwise) {
  if (block->idle > kPatience) forbid(otherwise);
  running().polling = true;
  yield(Fiber::State::ready);
}

bool happens() {
  const std::string_view known = known_way();
  return known == "now" || (known.empty() && random_bits() % 3 == 0);
}

void wait_for_predecessor() {
  Fiber& self = running();
  self.waited = true;
  if (block->early) yield(Fiber::State::early);
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
  return block ? block->shared : memory_of_main();
}

void* dynamic_shared() {
  return block->shared;
}

void block_barrier() {
  publish_fenced();
  yield(Fiber::State::at_barrier);
}

void named_barrier_arrive(int id, int threads) {
  publish_fenced();
  NamedBarrier& barrier = block->named_barriers.at(static_cast<size_t>(id));
  if (++barrier.arrived < threads) return;
  barrier.arrived = 0;
  barrier.rounds++;
}

void warpgroup_barrier(int id, int threads) {
  NamedBarrier& barrier = block->named_barriers.at(static_cast<size_t>(id));
  const int round = barrier.rounds;
  named_barrier_arrive(id, threads);
  while (barrier.rounds == round) poll("a named barrier to which not all come");
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

namespace {

void land(const Copy& copy) {
  if (copy.inside) {
    std::memcpy(copy.to, copy.from, 16);
  } else {
    std::memset(copy.to, 0, 16);
  }
}

}  // namespace

void start_copy(void* to, const void* from, bool inside) {
  if (reinterpret_cast<uintptr_t>(to) % 16 != 0 || reinterpret_cast<uintptr_t>(from) % 16 != 0)
    forbid("cp.async at an address that is not 16-byte aligned");
  const Copy copy{to, from, inside};
  happens() ? land(copy) : running().open.push_back(copy);
}

void cp_async_commit() {
  Fiber& self = running();
  self.groups.push_back(std::move(self.open));
  self.open.clear();
}

void cp_async_wait(int pending) {
  auto& groups = running().groups;
  while (groups.size() > static_cast<size_t>(pending)) {
    for (const Copy& copy : groups.front()) land(copy);
    groups.pop_front();
  }
}

}  // namespace emulator
