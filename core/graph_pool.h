// The memory of captured graphs. Graphs that share a pool never run at the same time, so each begins with all of it: what
// one holds between its own ops lies where another's lies, and its results stand only until another one is replayed.
#pragma once

#include <map>
#include <memory>

#include "core/allocator.h"

namespace steptrain {

/// Belongs to the host thread, like the allocator that it takes its segments from.
class GraphPool {
 public:
  explicit GraphPool(Allocator& memory)
      : memory_(memory),
        blocks_([this](int64_t bytes) { return acquire(bytes); },
                [this](void* data, int64_t) { release(data); }, [] {}, kNoLimit, kSegment) {}
  GraphPool(const GraphPool&) = delete;
  GraphPool& operator=(const GraphPool&) = delete;

  /// For the capture that is open. Throws Error(E_MEMORY).
  Allocator::Block* take(int64_t bytes) {
    Allocator::Block* block = blocks_.allocate(bytes);
    taken_.insert(block);
    return block;
  }
  /// For later ops of the same capture.
  void give_back(Allocator::Block* block) {
    taken_.erase(block);
    blocks_.free(block);
  }
  /// The capture has ended: the next one begins with all of the memory.
  void restart() {
    for (Allocator::Block* block : taken_) blocks_.free(block);
    taken_.clear();
  }

  /// What the backend keeps beside it for all graphs of the pool; the queue's thread alone uses it.
  std::shared_ptr<void> workspace;

 private:
  static constexpr int64_t kSegment = int64_t{256} << 10;

  void* acquire(int64_t bytes) {
    Allocator::Block* segment = memory_.allocate(bytes);
    segments_[segment->data] = segment;
    return segment->data;
  }
  void release(void* data) {
    const auto found = segments_.find(data);
    memory_.free(found->second);
    segments_.erase(found);
  }

  Allocator& memory_;
  std::map<void*, Allocator::Block*> segments_;
  std::set<Allocator::Block*> taken_;
  Allocator blocks_;  // goes first: it gives the segments back
};

}  // namespace steptrain
