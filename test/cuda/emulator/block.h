// The running block, as the emulator's files know it: its threads, what each of them has under way, and what others see of it.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "emulator.h"
#include "launch.h"

namespace emulator {

constexpr size_t kStackBytes = 128 << 10;
constexpr size_t kSharedBytes = 227 << 10;  // what a block of sm_90 may have
constexpr size_t kSharedWords = kSharedBytes / 4;

/// Of 16 bytes, by cp.async.
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

/// A product of a warpgroup, as one of its threads has it under way.
struct Product {
  float* sums;
  std::shared_ptr<Factors> factors;
  std::function<void(float*)> add;
};
/// Registers that products under way add to, which are filled with NaN meanwhile.
struct Accumulator {
  float* sums;
  std::vector<float> values;
  int products = 0;
};

/// A write to the GPU's memory, before it is sure to be seen by other blocks: the bytes that the others see while the
/// block runs, else those that it wrote.
struct Write {
  char* at;
  uint32_t bytes;
  char other[16];
};

struct Fiber {
  enum class State { ready, at_barrier, in_warp, early, done };
  void* stack_pointer = nullptr;
  std::unique_ptr<char[]> stack = std::make_unique<char[]>(kStackBytes);
  State state = State::done;
  bool polling = false;  // waits for what others do, and looks again in every pass
  int exchanges = 0;     // so far; its parity names the buffer
  const char* what = "";
  std::vector<Copy> open;
  std::deque<std::vector<Copy>> groups;
  std::vector<Product> products;  // of the open group
  std::deque<std::vector<Product>> product_groups;
  std::vector<Accumulator> accumulators;
  bool ordered = false;  // wgmma.fence since a product was waited for
  std::vector<Store> stores;
  std::deque<std::vector<Store>> store_groups;
  std::vector<uint32_t> written, fenced;  // words of shared memory; those that a proxy fence has ordered
  std::vector<Write> unseen;              // since the block's last barrier
  bool waited = false;                    // for the kernel before
  int registers = 0;                      // that it has asked for
};

/// An mbarrier.
struct Phases {
  uint32_t arrivals = 0, arrived = 0;
  int64_t pending_bytes = 0;
  uint32_t ended = 0;  // phases so far
  std::vector<std::pair<uint32_t, std::function<void()>>> copies;
  unsigned initialiser = 0;
  bool fenced = false;
  int fenced_at = 0;  // barriers of the block before
};

struct Warp {
  Exchange buffers[2];
  std::shared_ptr<Factors> factors;  // of the product that its lanes start
  int factors_at = -1;               // their exchanges then
  unsigned asleep = 0;               // passes that it lets the others go on
};

struct NamedBarrier {
  int arrived = 0, rounds = 0;
};

struct Block {
  std::map<void*, Phases> barriers;
  std::array<NamedBarrier, 16> named_barriers;
  std::deque<Fiber> fibers;
  std::vector<Warp> warps;
  const Launch* launch = nullptr;
  unsigned index = 0, threads = 0;
  void* scheduler = nullptr;  // its stack pointer
  char* shared = nullptr;     // dynamic shared memory
  int barriers_passed = 0;
  bool stuck = false;                  // nobody did anything but wait in the last pass
  int idle = 0;                        // passes in a row of which this is true
  bool yields = false;                 // lets another block run after this pass
  bool early = false;                  // the kernel before it still runs
  std::vector<char> kept;              // shared memory while that one runs
  std::vector<uint16_t> writers;       // of each word of shared memory: who wrote what the async proxy may not see yet
  std::vector<Write> unseen;           // before the block's last barrier, and not fenced
};

extern std::shared_ptr<Block> block;  // the running one
extern thread_local bool runs_blocks;  // whether this thread of the CPU does
Fiber& running();
/// Lets others run; returns in the next pass, unless nobody goes on for very long: then it is forbidden by `otherwise`.
void poll(const char* otherwise);
/// Whether something asynchronous happens now, where it may.
bool happens();

/// The running thread has written to shared memory, or to memory of the GPU it is about to.
void wrote(void* at, size_t bytes);
/// At a barrier: the async proxy sees what a fence has ordered.
void publish_fenced();
void forget_shared(const void* at, int64_t bytes);
/// Ends the process where the async proxy may not see what others wrote.
void check_seen(const void* at, int64_t bytes, const char* what);
void join_writes();   // at a barrier of the block
void hide_writes();   // while other blocks run
void show_writes();
void end_writes();    // of the block
void settle_writes();  // of the launch

}  // namespace emulator
