// CUDA's status codes as the project's errors.
#pragma once

#include <cuda_runtime_api.h>

#include <source_location>

namespace steptrain::cuda {

/// Throws Error(E_DEVICE), or E_MEMORY where memory ran out, with what was being done ("copying to the GPU"),
/// unless `status` is success. After an error
/// that ends the CUDA context the hint says that only a new process recovers.
void check(cudaError_t status, const char* doing,
           std::source_location where = std::source_location::current());

}  // namespace steptrain::cuda
