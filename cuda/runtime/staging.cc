#include "cuda/runtime/staging.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "core/glibcxx.h"
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

void Event::hold_back(cudaStream_t stream) const {
  check(cudaStreamWaitEvent(stream, event_, 0), "waiting for another stream");
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

namespace {

Pinned allocate_pinned(int64_t bytes) {
  void* data = nullptr;
  check(cudaHostAlloc(&data, static_cast<size_t>(bytes), cudaHostAllocDefault), "allocating pinned memory");
  return Pinned(static_cast<char*>(data));
}

}  // namespace

ReadBuffer::ReadBuffer() : memory_(allocate_pinned(kBytes)) {}

ReadBuffer::Part ReadBuffer::take(int64_t bytes, bool& waited) {
  const int64_t size = (bytes + 255) / 256 * 256;
  std::unique_lock lock(mutex_);
  int64_t at = taken_ % kBytes;
  const int64_t rest = kBytes - at;
  const int64_t span = size <= rest ? size : rest + size;  // a part is in one piece
  const auto fits = [&] { return taken_ + span - given_back_ <= kBytes; };
  if (!fits()) {
    waited = true;
    room_.wait(lock, fits);
  }
  taken_ += span;
  if (span > size) at = 0;
  std::unique_ptr<Event> event;
  if (!events_.empty()) {
    event = std::move(events_.back());
    events_.pop_back();
  }
  return {memory_.get() + at, span, event ? std::move(event) : std::make_unique<Event>()};
}

void ReadBuffer::give_back(Part part) {
  const std::lock_guard lock(mutex_);
  given_back_ += part.span;
  events_.push_back(std::move(part.event));
  room_.notify_one();
}

/// A part of a read on its way.
class Staging::Read final : public Pending {
 public:
  Read(Staging& staging, ReadBuffer::Part part, char* to, int64_t bytes, int64_t number)
      : staging_(staging), part_(std::move(part)), to_(to), bytes_(bytes), number_(number) {}
  ~Read() override { staging_.reads_.give_back(std::move(part_)); }

  void finish() override {
    check(cudaSetDevice(staging_.device_), "waiting for the GPU");
    staging_.waits_ += part_.event->wait("waiting for the GPU");
    if (bytes_ > 0) std::memcpy(to_, part_.data, static_cast<size_t>(bytes_));
    staging_.faults_.raise(number_);
  }

 private:
  Staging& staging_;
  ReadBuffer::Part part_;
  char* to_;
  int64_t bytes_, number_;
};

Staging::Staging(cudaStream_t stream, const Faults& faults, std::atomic<int64_t>& waits)
    : stream_(stream), faults_(faults), waits_(waits) {
  check(cudaGetDevice(&device_), "opening the GPU");
  for (Buffer& buffer : uploads_) buffer.data = allocate_pinned(kBytes);
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

void Staging::download(void* to, const void* from, int64_t bytes, int64_t number,
                       const Backend::Later& later) {
  int64_t done = 0;
  do {
    const int64_t size = std::min(bytes - done, ReadBuffer::kPart);
    bool waited = false;
    ReadBuffer::Part part = reads_.take(size, waited);
    waits_ += waited;
    if (size > 0)
      check(cudaMemcpyAsync(part.data, static_cast<const char*>(from) + done, static_cast<size_t>(size),
                            cudaMemcpyDeviceToHost, stream_),
            "copying from the GPU");
    part.event->record(stream_);
    later(std::make_unique<Read>(*this, std::move(part), static_cast<char*>(to) + done, size, number));
    done += size;
  } while (done < bytes);
}

void Staging::synchronize() {
  idle_.record(stream_);
  waits_ += idle_.wait("waiting for the GPU");
}

}  // namespace steptrain::cuda
