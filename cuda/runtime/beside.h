// A stream beside the compute stream, on which bytes travel between processes while kernels run.
#pragma once

#include <cuda_runtime_api.h>

#include <optional>

#include "cuda/runtime/staging.h"

namespace steptrain::cuda {

/// Made at its first use. Called by the queue's thread alone.
class Beside {
 public:
  Beside() = default;
  ~Beside();
  Beside(const Beside&) = delete;
  Beside& operator=(const Beside&) = delete;

  /// The stream; what it is given next runs after all that `compute` has been given.
  cudaStream_t after(cudaStream_t compute);
  /// What `compute` is given next runs after all that the stream has been given.
  void join(cudaStream_t compute);

 private:
  struct Open {
    cudaStream_t stream = nullptr;
    Event computed, arrived;
  };
  std::optional<Open> open_;
};

}  // namespace steptrain::cuda
