#include "cuda/runtime/beside.h"

#include "cuda/runtime/check.h"

namespace steptrain::cuda {

Beside::~Beside() {
  // What still runs there runs on; whoever frees its memory waits for the device.
  if (open_ && open_->stream) cudaStreamDestroy(open_->stream);
}

cudaStream_t Beside::after(cudaStream_t compute) {
  if (!open_) {
    open_.emplace();
    check(cudaStreamCreateWithFlags(&open_->stream, cudaStreamNonBlocking), "opening a stream");
  }
  open_->computed.record(compute);
  open_->computed.hold_back(open_->stream);
  return open_->stream;
}

void Beside::join(cudaStream_t compute) {
  if (!open_ || !open_->stream) return;
  open_->arrived.record(open_->stream);
  open_->arrived.hold_back(compute);
}

}  // namespace steptrain::cuda
