// The GPU's memory, as blocks of a launch see it: what a thread writes others see after a fence, which covers what its block
// wrote before its last barrier, too, or at the end of the launch. The compiler's instrumentation notes the writes.
#include <algorithm>
#include <utility>

#include "block.h"

namespace emulator {
namespace {

constexpr size_t kMost = 1 << 20;  // writes of a launch that are kept; others see those beyond at once

std::vector<Write> ended;  // of blocks of the launch that have ended

void exchange_bytes(Write& write) {
  char held[16];
  std::memcpy(held, write.at, write.bytes);
  std::memcpy(write.at, write.other, write.bytes);
  std::memcpy(write.other, held, write.bytes);
}
void show(std::vector<Write>& writes) {
  for (Write& write : writes) exchange_bytes(write);
}
void hide(std::vector<Write>& writes) {
  for (size_t i = writes.size(); i-- > 0;) exchange_bytes(writes[i]);
}

bool alone() {
  return block->launch->config.gridDim.x < 2;
}

}  // namespace

void wrote(void* at, size_t bytes) {
  if (!runs_blocks || block->early) return;
  note_write(at, bytes);
  if (!in_memory(at) || alone() || ended.size() + running().unseen.size() > kMost) return;
  for (size_t from = 0; from < bytes; from += 16) {
    Write write{static_cast<char*>(at) + from, static_cast<uint32_t>(std::min<size_t>(16, bytes - from)), {}};
    std::memcpy(write.other, write.at, write.bytes);
    running().unseen.push_back(write);
  }
}

void join_writes() {
  for (unsigned i = 0; i < block->threads; i++) {
    auto& own = block->fibers[i].unseen;
    block->unseen.insert(block->unseen.end(), own.begin(), own.end());
    own.clear();
  }
}

void hide_writes() {
  for (unsigned i = block->threads; i-- > 0;) hide(block->fibers[i].unseen);
  hide(block->unseen);
}
void show_writes() {
  show(block->unseen);
  for (unsigned i = 0; i < block->threads; i++) show(block->fibers[i].unseen);
}

void end_writes() {
  join_writes();
  hide(block->unseen);
  ended.insert(ended.end(), block->unseen.begin(), block->unseen.end());
  block->unseen.clear();
}
void settle_writes() {
  show(ended);
  ended.clear();
}

void thread_fence() {
  running().unseen.clear();
  block->unseen.clear();
}
int compare_and_swap(int* at, int expected, int value) {
  const int old = *at;
  if (old == expected) *at = value;
  return old;
}
uint32_t add_to(uint32_t* at, uint32_t value) {
  block->yields = true;  // to those that learn of it
  const uint32_t old = *at;
  *at += value;
  return old;
}
void release_count(uint32_t* count, uint32_t value) {
  thread_fence();
  block->yields = true;
  *count = value;
}
void await_count(const uint32_t* count, uint32_t wanted) {
  while (*count != wanted) {
    block->yields = true;
    poll("a block that waits for a later one");
  }
}

}  // namespace emulator

// Called before each write of a kernel (build.mjs: -fsanitize=kernel-address, which needs nothing but these).
#define STEPTRAIN_WRITES(bytes)                                           \
  extern "C" __attribute__((visibility("default"))) void __asan_store##bytes(void* at) { \
    emulator::wrote(at, bytes);                                           \
  }
STEPTRAIN_WRITES(1)
STEPTRAIN_WRITES(2)
STEPTRAIN_WRITES(4)
STEPTRAIN_WRITES(8)
STEPTRAIN_WRITES(16)
extern "C" __attribute__((visibility("default"))) void __asan_storeN(void* at, size_t bytes) {
  emulator::wrote(at, bytes);
}
extern "C" __attribute__((visibility("default"))) void __asan_handle_no_return() {}
