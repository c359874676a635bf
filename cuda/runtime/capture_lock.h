// CUDA forbids calls that wait for the whole GPU while any stream of it is under capture, whichever thread
// captures. A process may have several devices on one GPU, each with a thread of its own.
#pragma once

#include <mutex>

namespace steptrain::cuda {

/// Held during a capture, and by any thread
/// that allocates or frees outside a stream's order or loads a kernel.
inline std::recursive_mutex& capture_lock() {
  static std::recursive_mutex lock;
  return lock;
}

}  // namespace steptrain::cuda
