// Stream-ordered caching allocator. Only the host thread calls it: since ops run in the order in which they
// were queued, memory that the host frees may be handed to a later op at once, without waiting for the
// earlier one. Blocks are split and merged inside large segments, best fit first, so ragged shapes do not
// grow the reserve.
#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <vector>

namespace steptrain {

struct AllocatorStats {
  int64_t live = 0;      // bytes handed out, rounded to 256
  int64_t peak = 0;      // most bytes ever live
  int64_t reserved = 0;  // bytes held in segments
};

class Allocator {
 public:
  using Acquire = std::function<void*(int64_t bytes)>;  // nullptr where there is none
  using Release = std::function<void(void*, int64_t bytes)>;

  Allocator(Acquire acquire, Release release) : acquire_(std::move(acquire)), release_(std::move(release)) {}
  ~Allocator();
  Allocator(const Allocator&) = delete;
  Allocator& operator=(const Allocator&) = delete;

  struct Block {
    char* data;
    int64_t bytes;
    bool free;
    Block* previous;  // neighbours within the segment
    Block* next;
  };

  /// 256-byte aligned. Throws Error(E_MEMORY) naming the missing bytes.
  Block* allocate(int64_t bytes);
  void free(Block* block);
  const AllocatorStats& stats() const { return stats_; }
  void reset_peak() { stats_.peak = stats_.live; }

 private:
  struct BySize {
    bool operator()(const Block* a, const Block* b) const {
      return a->bytes != b->bytes ? a->bytes < b->bytes : a->data < b->data;
    }
  };
  void release_unused();

  Acquire acquire_;
  Release release_;
  AllocatorStats stats_;
  std::set<Block*, BySize> free_;
  std::vector<Block*> segments_;  // the first block of each
};

}  // namespace steptrain
