// Copies between the caller's memory and the GPU's through pinned buffers. An upload returns once its bytes
// are in a buffer and waits only where all buffers are still being copied.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstdint>
#include <memory>

namespace steptrain::cuda {

/// An event to wait for without keeping a core busy: polls briefly, then sleeps.
class Event {
 public:
  Event();
  ~Event();
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  void record(cudaStream_t stream);
  /// Returns whether there was something to wait for; at once where nothing was recorded.
  bool wait(const char* doing) const;

 private:
  cudaEvent_t event_ = nullptr;
};

class Staging {
 public:
  explicit Staging(cudaStream_t stream);
  ~Staging();
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  /// Queues the copy of host bytes, whose memory may be reused when this returns.
  void upload(void* to, const void* from, int64_t bytes);
  /// Waits for everything queued before, then for the bytes.
  void download(void* to, const void* from, int64_t bytes);
  /// Waits for everything queued so far.
  void synchronize();
  /// How many of the calls above had to wait.
  int64_t waits() const { return waits_; }

 private:
  static constexpr int64_t kBytes = int64_t{2} << 20;
  struct FreePinned {
    void operator()(char* data) const { cudaFreeHost(data); }
  };
  struct Buffer {
    std::unique_ptr<char, FreePinned> data;
    Event sent;
  };

  cudaStream_t stream_;
  std::array<Buffer, 4> uploads_;
  std::array<Buffer, 2> downloads_;
  size_t filling_ = 0;  // of uploads_
  int64_t filled_ = 0;  // bytes of it
  Event idle_;
  int64_t waits_ = 0;
};

}  // namespace steptrain::cuda
