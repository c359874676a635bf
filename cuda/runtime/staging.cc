#include "cuda/runtime/staging.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "cuda/runtime/check.h"

namespace steptrain::cuda {

Event::Event() {
  check(cudaEventCreateWithFlags(&event_, cudaEventBlockingSync | cudaEventDisableTiming), "opening the GPU");
}

Event::~Event() {
  if (event_) cudaEventDestroy(event_);
}

void Event::record(cudaStream_t stream) {
  check(cudaEventRecord(event_, stream), "marking the stream");
}

bool Event::wait(const char* doing) const {
  // Polls first, like the queue's own wait: waking a thread costs tens of microseconds.
  constexpr auto kSpin = std::chrono::microseconds(100);
  const auto until = std::chrono::steady_clock::now() + kSpin;
  bool waited = false;
  do {
    const cudaError_t status = cudaEventQuery(event_);
    if (status != cudaErrorNotReady) {
      check(status, doing);
      return waited;
    }
    waited = true;
  } while (std::chrono::steady_clock::now() < until);
  cudaGetLastError();  // "not ready" is not an error
  check(cudaEventSynchronize(event_), doing);
  return waited;
}

Staging::Staging(cudaStream_t stream) : stream_(stream) {
  const auto allocate = [](Buffer& buffer) {
    void* data = nullptr;
    check(cudaHostAlloc(&data, kBytes, cudaHostAllocDefault), "allocating pinned memory");
    buffer.data.reset(static_cast<char*>(data));
  };
  for (Buffer& buffer : uploads_) allocate(buffer);
  for (Buffer& buffer : downloads_) allocate(buffer);
}

Staging::~Staging() {
  cudaStreamSynchronize(stream_);  // a copy may still read a buffer
}

void Staging::upload(void* to, const void* from, int64_t bytes) {
  bool waited = false;
  for (int64_t done = 0; done < bytes;) {
    if (filled_ >= kBytes) {
      uploads_[filling_].sent.record(stream_);
      filling_ = (filling_ + 1) % uploads_.size();
      waited |= uploads_[filling_].sent.wait("copying to the GPU");
      filled_ = 0;
    }
    const int64_t part = std::min(bytes - done, kBytes - filled_);
    char* pinned = uploads_[filling_].data.get() + filled_;
    std::memcpy(pinned, static_cast<const char*>(from) + done, static_cast<size_t>(part));
    check(cudaMemcpyAsync(static_cast<char*>(to) + done, pinned, static_cast<size_t>(part),
                          cudaMemcpyHostToDevice, stream_),
          "copying to the GPU");
    filled_ += (part + 255) / 256 * 256;
    done += part;
  }
  waits_ += waited;
}

void Staging::download(void* to, const void* from, int64_t bytes) {
  const int64_t parts = (bytes + kBytes - 1) / kBytes;
  const auto size = [&](int64_t part) {
    return static_cast<size_t>(std::min(kBytes, bytes - part * kBytes));
  };
  const auto fetch = [&](int64_t part) {
    Buffer& buffer = downloads_[static_cast<size_t>(part) % downloads_.size()];
    check(cudaMemcpyAsync(buffer.data.get(), static_cast<const char*>(from) + part * kBytes, size(part),
                          cudaMemcpyDeviceToHost, stream_),
          "copying from the GPU");
    buffer.sent.record(stream_);
  };
  if (parts == 0) return synchronize();
  bool waited = false;
  fetch(0);
  for (int64_t part = 0; part < parts; part++) {
    if (part + 1 < parts) fetch(part + 1);
    const Buffer& buffer = downloads_[static_cast<size_t>(part) % downloads_.size()];
    waited |= buffer.sent.wait("waiting for the GPU");
    std::memcpy(static_cast<char*>(to) + part * kBytes, buffer.data.get(), size(part));
  }
  waits_ += waited;
}

void Staging::synchronize() {
  idle_.record(stream_);
  waits_ += idle_.wait("waiting for the GPU");
}

}  // namespace steptrain::cuda
