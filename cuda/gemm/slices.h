// How the depth of x·Wᵀ is cut where blocks share it (cuda/gemm/sm90_few_rows.cuh): by the weight alone, so that an
// element's order of sums depends neither on the rows of x nor on the GPU. Of a weight with many rows the depth is one
// slice, since its tiles fill a GPU: the order is then that of cuda/gemm/sm90_tiles.cuh.
#pragma once

#include <cstdint>

#if !defined(__CUDACC__) && !defined(__host__)
#define __host__
#define __device__
#endif

namespace steptrain::cuda {

constexpr int kSliceDepth = 64;  // slices are whole multiples of it
constexpr int kMostSlices = 4;

/// Slices of a product with that many columns (rows of W): 1, 2 or 4.
__host__ __device__ constexpr int slices_of(int64_t columns, int64_t depth) {
  if (columns <= 4096) return depth >= 768 ? 4 : depth >= 384 ? 2 : 1;
  return columns <= 8192 && depth >= 3072 ? 2 : 1;
}
/// The first of `steps` steps of kSliceDepth of slice `slice`; that of the slice behind the last is `steps`.
__host__ __device__ constexpr int first_step(int steps, int slice, int slices) {
  const auto product = static_cast<unsigned>(steps * slice);
  return static_cast<int>(slices == 4 ? product / 4 : slices == 2 ? product / 2 : product);
}

}  // namespace steptrain::cuda
