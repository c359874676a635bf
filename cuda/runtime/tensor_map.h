// Tensor maps, which describe matrices to the tensor memory accelerator (TMA) of sm_90.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "cuda/runtime/stream.h"

namespace steptrain::cuda {

constexpr int kBoxColumns = 64;  // of bf16: the 128 bytes of one swizzled row

/// A row-major bf16 matrix, 16-byte aligned, columns a multiple of 8, read in boxes of `box_rows` ×
/// kBoxColumns that land in shared memory with the 128-byte swizzle. The driver's function is looked up when
/// first needed (nothing links libcuda). An empty map where `stream` only measures: workspace has no address
/// then that the driver would know. Throws Error(E_DEVICE).
CUtensorMap make_tensor_map(const Stream& stream, const void* data, int64_t rows, int64_t columns,
                            int box_rows);

}  // namespace steptrain::cuda
