// Stream-ordered caching allocator. Only the host thread calls it: since ops run in the order in which they
// were queued, memory that the host frees may be handed to a later op at once, without waiting for the
// earlier one. Giving a segment back to the system is another matter: ops that are still queued point into
// it, so that happens only when memory ran out, after everything queued has run. Blocks are split and merged
// inside large segments, best fit first, so ragged shapes do not grow the reserve.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <set>
#include <vector>

namespace steptrain {

constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();

struct AllocatorStats {
  int64_t live = 0;      // bytes in use, rounded to 256
  int64_t peak = 0;      // max of `live` so far
  int64_t reserved = 0;  // bytes held in segments
};

class Allocator {
 public:
  using Acquire = std::function<void*(int64_t bytes)>;  // nullptr where there is none
  using Release = std::function<void(void*, int64_t bytes)>;
  /// Returns when nothing queued uses free memory any more; may call free() for memory that graphs held.
  using Settle = std::function<void()>;

  /// `limit`: max bytes of all segments together. `segment`: bytes of those that small requests share.
  Allocator(Acquire acquire, Release release, Settle settle, int64_t limit, int64_t segment = kSegment)
      : acquire_(std::move(acquire)),
        release_(std::move(release)),
        settle_(std::move(settle)),
        limit_(limit),
        segment_(segment) {}
  /// Nothing may be queued or running.
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

  /// 256-byte aligned. Waits for the queue where memory ran out.
  /// Throws Error(E_MEMORY) naming the missing bytes.
  Block* allocate(int64_t bytes);
  void free(Block* block);
  const AllocatorStats& stats() const { return stats_; }
  void reset_peak() { stats_.peak = stats_.live; }

 private:
  static constexpr int64_t kSegment = int64_t{32} << 20;

  struct BySize {
    bool operator()(const Block* a, const Block* b) const {
      return a->bytes != b->bytes ? a->bytes < b->bytes : a->data < b->data;
    }
  };
  Block* take_free(int64_t bytes);
  Block* add_segment(int64_t bytes);
  void release_unused();

  Acquire acquire_;
  Release release_;
  Settle settle_;
  int64_t limit_, segment_;
  AllocatorStats stats_;
  std::set<Block*, BySize> free_;
  std::vector<Block*> segments_;  // the first block of each
};

}  // namespace steptrain
