#include "core/allocator.h"

#include <algorithm>

#include "core/error.h"

namespace steptrain {
namespace {
constexpr int64_t kAlign = 256;
constexpr int64_t kRound = int64_t{2} << 20;  // segments of one request are rounded to this, at most
}  // namespace

/// The smallest free block that holds `bytes`, or none.
Allocator::Block* Allocator::take_free(int64_t bytes) {
  Block probe{nullptr, bytes, true, nullptr, nullptr};
  const auto found = free_.lower_bound(&probe);
  if (found == free_.end()) return nullptr;
  Block* block = *found;
  free_.erase(found);
  return block;
}

/// A new segment as one block, or none.
Allocator::Block* Allocator::add_segment(int64_t bytes) {
  const int64_t round = std::min(segment_, kRound);
  const int64_t size = bytes <= segment_ / 2 ? segment_ : (bytes + round - 1) / round * round;
  void* data = size <= limit_ - stats_.reserved ? acquire_(size) : nullptr;
  if (!data) return nullptr;
  stats_.reserved += size;
  segments_.push_back(new Block{static_cast<char*>(data), size, true, nullptr, nullptr});
  return segments_.back();
}

Allocator::Block* Allocator::allocate(int64_t bytes) {
  bytes = std::max<int64_t>(kAlign, (bytes + kAlign - 1) / kAlign * kAlign);
  Block* block = take_free(bytes);
  if (!block) block = add_segment(bytes);
  if (!block) {
    settle_();
    block = take_free(bytes);
  }
  if (!block) {
    release_unused();
    block = add_segment(bytes);
  }
  if (!block) {
    const auto number = [](int64_t n) { return static_cast<long long>(n); };
    const std::string limit =
        limit_ == kNoLimit ? "" : format(", at most %lld bytes allowed", number(limit_));
    throw Error("E_MEMORY",
                format("out of device memory: %lld bytes asked for, %lld bytes live, %lld bytes reserved",
                       number(bytes), number(stats_.live), number(stats_.reserved)) +
                    limit,
                "use smaller micro-batches, gradient checkpointing or a smaller model");
  }
  if (block->bytes - bytes >= kAlign) {
    Block* rest = new Block{block->data + bytes, block->bytes - bytes, true, block, block->next};
    if (block->next) block->next->previous = rest;
    block->next = rest;
    block->bytes = bytes;
    free_.insert(rest);
  }
  block->free = false;
  stats_.live += block->bytes;
  stats_.peak = std::max(stats_.peak, stats_.live);
  return block;
}

void Allocator::free(Block* block) {
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

/// Gives back the segments that hold nothing; nothing queued may use them. A merged segment is its first
/// block, so heads stay what they were.
void Allocator::release_unused() {
  std::erase_if(segments_, [this](Block* head) {
    if (!head->free || head->next) return false;
    free_.erase(head);
    release_(head->data, head->bytes);
    stats_.reserved -= head->bytes;
    delete head;
    return true;
  });
}

/// The device is going away: whatever is still live goes with it.
Allocator::~Allocator() {
  for (Block* head : segments_) {
    char* data = head->data;
    int64_t bytes = 0;
    for (Block* block = head; block;) {
      Block* next = block->next;
      bytes += block->bytes;
      delete block;
      block = next;
    }
    release_(data, bytes);
  }
}

}  // namespace steptrain
