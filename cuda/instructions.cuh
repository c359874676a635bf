// The PTX instructions that kernels use and C++ has no names for. docs/kernels/glossary.md has PTX's names.
#pragma once

#include <cstdint>

namespace steptrain::cuda {

__device__ inline uint16_t round_to_bf16(float x) {
  uint16_t bits;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(x));
  return bits;
}

/// Two neighbouring elements; `first` in the lower half.
__device__ inline uint32_t round_to_bf16_pair(float first, float second) {
  uint32_t pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
  return pair;
}

/// The block's dynamic shared memory, 16-byte aligned.
__device__ inline char* dynamic_shared() {
  extern __shared__ uint4 shared[];
  return reinterpret_cast<char*>(shared);
}

/// Of a kernel that Stream::launch_early starts: waits until the kernels before it have ended and what they wrote is
/// visible, then lets the kernel after this one start once every block has come here, so that no more than two kernels are under
/// way. Every thread calls it before it touches memory that others write, and before it ends.
__device__ inline void take_turn() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

/// 2^x to about 2 ulp; 0 where it is below the normal numbers.
__device__ inline float exp2_approximate(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

/// Hides the value from the compiler, so that it cannot compute ahead what depends on it.
__device__ inline void forget(int64_t& value) {
  asm volatile("" : "+l"(value));
}
__device__ inline void forget(uint32_t& value) {
  asm volatile("" : "+r"(value));
}

__device__ inline uint32_t shared_address(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

/// Starts a copy of 16 bytes into shared memory; both addresses are multiples of 16. Where `inside` is false,
/// writes zeros and reads nothing.
__device__ inline void cp_async(void* to_shared, const void* from, bool inside) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to_shared)), "l"(from),
               "r"(inside ? 16 : 0)
               : "memory");
}
/// Commits the copies that this thread started as a group.
__device__ inline void cp_async_commit() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
/// Waits until at most `pending` of this thread's groups are incomplete.
template <int pending>
__device__ inline void cp_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(pending) : "memory");
}

/// Four 8×8 matrices of bf16: lanes 8i..8i+7 give the addresses of the rows of matrix i. Register i of lane l
/// receives row l/4, columns 2(l%4) and 2(l%4)+1 of matrix i.
__device__ inline void ldmatrix(uint32_t (&r)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(row))
               : "memory");
}
/// The same with each matrix transposed: rows 2(l%4) and 2(l%4)+1, column l/4.
__device__ inline void ldmatrix_trans(uint32_t (&r)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(row))
               : "memory");
}

/// d[16,8] += a[16,16]·b[16,8]. With g = l/4 and t = l%4 of lane l, pairs of neighbours:
///   a: (g, 2t) (g+8, 2t) (g, 2t+8) (g+8, 2t+8)   b: (2t, g) (2t+8, g) along rows   d: (g, 2t) (g+8, 2t)
__device__ inline void mma(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

}  // namespace steptrain::cuda
