// What a CPU kernel gets besides its arguments: threads and workspace.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <vector>

#include "core/args.h"
#include "core/error.h"
#include "cpu/runtime/beside.h"
#include "cpu/runtime/thread_pool.h"

namespace steptrain::cpu {

/// Workspace of the running op: a bump allocator that is reset when the op ends
/// and keeps its memory for the next.
class Scratch {
 public:
  /// 64-byte aligned, uninitialised. To be called before the parallel region, not inside it.
  template <typename T>
  T* take(int64_t count) {
    const int64_t bytes = (count * static_cast<int64_t>(sizeof(T)) + 63) / 64 * 64;
    if (used_ + bytes > block_bytes_) grow(bytes);
    void* data = block_.get() + used_;
    used_ += bytes;
    held_ += bytes;
    if (held_ > peak_) peak_ = held_;
    return static_cast<T*>(data);
  }
  void reset();
  int64_t peak() const { return peak_; }

 private:
  struct Free {
    void operator()(char* data) const { std::free(data); }
  };
  using Block = std::unique_ptr<char, Free>;
  void grow(int64_t bytes);

  Block block_;
  std::vector<Block> outgrown_;  // still in use by this op
  int64_t block_bytes_ = 0;
  int64_t used_ = 0;
  int64_t held_ = 0;
  int64_t peak_ = 0;
};

struct Stream {
  ThreadPool& pool;
  Scratch& scratch;
  Beside& beside;
};

using Kernel = void (*)(Stream&, const Args&);

}  // namespace steptrain::cpu
