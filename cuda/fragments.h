// Which elements of a tensor core's matrices a thread holds (PTX ISA, fragments of mma.m16n8k16 and of
// wgmma.m64nNk16), and how a descriptor tells a wgmma of a matrix in shared memory.
// test/cuda/layouts.test.ts compares them with CuTe's layouts.
#pragma once

#include <cstdint>

#if !defined(__CUDACC__) && !defined(__host__)
#define __host__
#define __device__
#endif

namespace steptrain::cuda {

/// Row, of the 16 of its warp, and column of a lane's accumulator i: four for every 8 columns.
__host__ __device__ constexpr int fragment_row(int lane, int i) {
  return lane / 4 + i / 2 % 2 * 8;
}
__host__ __device__ constexpr int fragment_column(int lane, int i) {
  return i / 4 * 8 + lane % 4 * 2 + i % 2;
}

/// Of a bf16 matrix in boxes of 64 columns with the 128-byte swizzle, at `address` in shared memory; 8 rows are
/// 1024 bytes. `leading`: bytes between boxes where the rows are the depth.
__host__ __device__ constexpr uint64_t descriptor_at(uint32_t address, uint32_t leading) {
  constexpr uint64_t kStride = 1024, kSwizzle128 = 1;
  return (address >> 4 & 0x3fff) | uint64_t{leading >> 4 & 0x3fff} << 16 | kStride >> 4 << 32 |
         kSwizzle128 << 62;
}

}  // namespace steptrain::cuda
