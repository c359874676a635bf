#include "core/allocator.h"

#include <algorithm>

#include "core/error.h"

namespace steptrain {
namespace {
constexpr int64_t kAlign = 256;
constexpr int64_t kSegment = int64_t{32} << 20;  // small requests share segments of this size
constexpr int64_t kRound = int64_t{2} << 20;     // larger ones get their own, rounded to this
}  // namespace

void* Allocator::allocate(int64_t bytes) {
  bytes = std::max<int64_t>(kAlign, (bytes + kAlign - 1) / kAlign * kAlign);
  Block probe{nullptr, bytes, true, nullptr, nullptr};
  auto it = free_.lower_bound(&probe);
  Block* block = nullptr;
  if (it != free_.end()) {
    block = *it;
    free_.erase(it);
  } else {
    const int64_t size = bytes <= kSegment / 2 ? kSegment : (bytes + kRound - 1) / kRound * kRound;
    void* data = acquire_(size);
    if (!data) {
      release_unused();
      data = acquire_(size);
    }
    if (!data) {
      throw Error("E_MEMORY",
                  format("out of device memory: %lld bytes asked for, %lld bytes live, %lld bytes reserved",
                         static_cast<long long>(bytes), static_cast<long long>(stats_.live),
                         static_cast<long long>(stats_.reserved)),
                  "use smaller micro-batches, gradient checkpointing or a smaller model");
    }
    stats_.reserved += size;
    block = new Block{static_cast<char*>(data), size, true, nullptr, nullptr};
  }
  if (block->bytes - bytes >= kAlign) {
    Block* rest = new Block{block->data + bytes, block->bytes - bytes, true, block, block->next};
    if (block->next) block->next->previous = rest;
    block->next = rest;
    block->bytes = bytes;
    free_.insert(rest);
  }
  block->free = false;
  live_[block->data] = block;
  stats_.live += block->bytes;
  stats_.peak = std::max(stats_.peak, stats_.live);
  return block->data;
}

void Allocator::free(void* data) {
  auto found = live_.find(data);
  if (found == live_.end()) throw Error("E_HANDLE", "freed memory that this allocator did not hand out");
  Block* block = found->second;
  live_.erase(found);
  stats_.live -= block->bytes;
  block->free = true;
  if (Block* next = block->next; next && next->free) {
    free_.erase(next);
    block->bytes += next->bytes;
    block->next = next->next;
    if (next->next) next->next->previous = block;
    delete next;
  }
  if (Block* previous = block->previous; previous && previous->free) {
    free_.erase(previous);
    previous->bytes += block->bytes;
    previous->next = block->next;
    if (block->next) block->next->previous = previous;
    delete block;
    block = previous;
  }
  free_.insert(block);
}

void Allocator::release_unused() {
  for (auto it = free_.begin(); it != free_.end();) {
    Block* block = *it;
    if (!block->previous && !block->next) {
      release_(block->data, block->bytes);
      stats_.reserved -= block->bytes;
      it = free_.erase(it);
      delete block;
    } else {
      ++it;
    }
  }
}

Allocator::~Allocator() {
  // The device is going away: whatever is still live goes with it.
  std::vector<void*> data;
  for (const auto& [address, block] : live_) data.push_back(address);
  for (void* address : data) free(address);
  release_unused();
}

}  // namespace steptrain
