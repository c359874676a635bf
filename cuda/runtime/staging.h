// Copies between the caller's memory and the GPU's through pinned buffers. An upload returns once its bytes are in a
// buffer and waits only where all buffers are still being copied; a read once its copy into pinned memory is queued,
// and waits only where that memory is full.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "core/backend.h"
#include "cuda/runtime/faults.h"

namespace steptrain::cuda {

/// An event to wait for without keeping a core busy: polls briefly, then sleeps.
class Event {
 public:
  Event();
  ~Event();
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  void record(cudaStream_t stream);
  /// What `stream` is given next waits for what was recorded last.
  void hold_back(cudaStream_t stream) const;
  /// Returns whether there was something to wait for; at once where nothing was recorded.
  bool wait(const char* doing) const;

 private:
  cudaEvent_t event_ = nullptr;
};

struct FreePinned {
  void operator()(char* data) const { cudaFreeHost(data); }
};
using Pinned = std::unique_ptr<char, FreePinned>;

/// Pinned memory and events for reads. Taken by the queue's thread, given back by the waiter's in the same order.
class ReadBuffer {
 public:
  static constexpr int64_t kBytes = int64_t{4} << 20;
  static constexpr int64_t kPart = kBytes / 2;

  ReadBuffer();

  struct Part {
    char* data;
    int64_t span;  // bytes until the end of the part, from that of the one before
    std::unique_ptr<Event> event;
  };
  /// A part of at most kPart bytes. Waits until there is room; `waited` says whether it had to.
  Part take(int64_t bytes, bool& waited);
  void give_back(Part part);

 private:
  Pinned memory_;
  std::mutex mutex_;
  std::condition_variable room_;
  int64_t taken_ = 0, given_back_ = 0;  // bytes so far
  std::vector<std::unique_ptr<Event>> events_;
};

class Staging {
 public:
  /// Counts in `waits` how many parts of reads and how many of the calls below had to wait.
  Staging(cudaStream_t stream, const Faults& faults, std::atomic<int64_t>& waits);
  ~Staging();
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  /// Queues the copy of host bytes, whose memory may be reused when this returns.
  void upload(void* to, const void* from, int64_t bytes);
  /// Queues the copy to the host, at least one part; each arrives when what `later` gets has finished. That throws
  /// what ops up to number `number` have reported. Without bytes it only waits for everything queued so far.
  void download(void* to, const void* from, int64_t bytes, int64_t number, const Backend::Later& later);
  /// Waits for everything queued so far.
  void synchronize();

 private:
  class Read;
  static constexpr int64_t kBytes = int64_t{2} << 20;
  struct Buffer {
    Pinned data;
    Event sent;
  };

  cudaStream_t stream_;
  const Faults& faults_;
  std::atomic<int64_t>& waits_;
  int device_ = 0;
  std::array<Buffer, 4> uploads_;
  size_t filling_ = 0;  // of uploads_
  int64_t filled_ = 0;  // bytes of it
  ReadBuffer reads_;
  Event idle_;
};

}  // namespace steptrain::cuda
