// The PTX instructions of sm_90a: mbarriers in shared memory, tile copies by the tensor memory accelerator
// (TMA), and products of a warpgroup (wgmma). docs/kernels/glossary.md has PTX's names.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "cuda/fragments.h"
#include "cuda/instructions.cuh"

namespace steptrain::cuda {

/// An mbarrier in shared memory. A phase ends when all arrivals and all expected bytes have come.
using Barrier = uint64_t;

__device__ inline void mbarrier_init(Barrier* barrier, uint32_t arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(arrivals)
               : "memory");
}
/// After mbarrier_init, by the thread that called it, before the block's barrier.
__device__ inline void fence_barrier_init() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
__device__ inline void mbarrier_arrive(Barrier* barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory");
}
/// Arrives, and makes the phase wait for that many bytes of copies.
__device__ inline void mbarrier_expect_tx(Barrier* barrier, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)),
               "r"(bytes)
               : "memory");
}
/// Waits for the end of the phase of that parity; the phases of a barrier are 0, 1, 0, …
__device__ inline void mbarrier_wait(Barrier* barrier, uint32_t parity) {
  uint32_t ended = 0;
  while (!ended) {
    asm volatile(
        "{\n.reg .pred p;\n"
        "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
        "selp.u32 %0, 1, 0, p;\n}"
        : "=r"(ended)
        : "r"(shared_address(barrier)), "r"(parity)
        : "memory");
  }
}

/// Brings a kernel's tensor map closer.
__device__ inline void prefetch_map(const CUtensorMap* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}
/// Starts the load of the box at (row, column) of a matrix into shared memory, 1024-byte aligned. `barrier`
/// counts all its bytes, also those beyond the matrix, which are zeros. By one thread.
__device__ inline void tma_load(void* to, const CUtensorMap* matrix, int32_t row, int32_t column,
                                Barrier* barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], "
      "[%4];" ::"r"(shared_address(to)),
      "l"(matrix), "r"(column), "r"(row), "r"(shared_address(barrier))
      : "memory");
}

/// Writes four 8×8 matrices of bf16 to shared memory, the counterpart of ldmatrix.
__device__ inline void stmatrix(void* row, const uint32_t (&r)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(shared_address(row)),
               "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3])
               : "memory");
}
/// Starts the store of a box in shared memory, in the layout of tma_load, to (row, column) of a matrix;
/// elements beyond the matrix are not written. By one thread,
/// which also commits groups of stores and waits for them.
__device__ inline void tma_store(const CUtensorMap* matrix, int32_t row, int32_t column, const void* from) {
  asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%1, %2}], [%3];" ::"l"(matrix),
               "r"(column), "r"(row), "r"(shared_address(from))
               : "memory");
}
__device__ inline void tma_store_commit() {
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
/// Waits until at most `pending` groups may still read shared memory.
template <int pending>
__device__ inline void tma_store_wait_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(pending) : "memory");
}

/// Starts a copy of `bytes`, or the addition of as many floats, from shared memory to 16-byte aligned memory of the
/// device. In the groups of tma_store_commit.
__device__ inline void bulk_store(float* to, const void* from, uint32_t bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to),
               "r"(shared_address(from)), "r"(bytes)
               : "memory");
}
__device__ inline void bulk_add(float* to, const void* from, uint32_t bytes) {
  asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;" ::"l"(to),
               "r"(shared_address(from)), "r"(bytes)
               : "memory");
}
/// Waits until at most `pending` groups are incomplete; what the others wrote is then visible to this thread.
template <int pending>
__device__ inline void bulk_wait() {
  asm volatile("cp.async.bulk.wait_group %0;" ::"n"(pending) : "memory");
}

/// Whether *count is `wanted`, or waits until it is. What its writer had seen before its store_release is visible then.
__device__ inline bool has_count(const uint32_t* count, uint32_t wanted) {
  uint32_t found;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(found) : "l"(count) : "memory");
  return found == wanted;
}
__device__ inline void wait_for_count(const uint32_t* count, uint32_t wanted) {
  while (!has_count(count, wanted)) __nanosleep(32);
}
__device__ inline void store_release(uint32_t* count, uint32_t value) {
  asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(count), "r"(value) : "memory");
}

/// Reads four floats, or where `taken` is false leaves them as they are, without a branch.
__device__ inline void load_where(bool taken, const float4* from, float& a, float& b, float& c, float& d) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.u32 p, %5, 0;\n"
      "@p ld.global.v4.f32 {%0, %1, %2, %3}, [%4];\n}\n"
      : "+f"(a), "+f"(b), "+f"(c), "+f"(d)
      : "l"(from), "r"(uint32_t{taken})
      : "memory");
}

/// The descriptor by which a wgmma finds a factor in boxes of rows of 128 bytes, whose chunks of 16 bytes
/// TMA's 128-byte swizzle has permuted by the row mod 8; 8 rows are 1024 bytes. MN-major, `across` is the
/// distance between boxes of 64 columns. A step of 16 of the depth is 32 bytes further, MN-major 2048.
__device__ inline uint64_t matrix_descriptor(const void* tile, uint32_t across) {
  return descriptor_at(shared_address(tile), across);
}

/// Orders writes to registers before the wgmmas that read them.
__device__ inline void wgmma_fence() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ inline void wgmma_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
/// Waits until at most `pending` of the warpgroup's groups are incomplete.
template <int pending>
__device__ inline void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(pending) : "memory");
}
/// Keeps the compiler from moving uses of accumulators past this point.
template <int n>
__device__ inline void pin(float (&d)[n]) {
#pragma unroll
  for (int i = 0; i < n; i++) asm volatile("" : "+f"(d[i])::"memory");
}

/// The same for registers that hold a factor.
template <int n>
__device__ inline void pin(uint32_t (&a)[n]) {
#pragma unroll
  for (int i = 0; i < n; i++) asm volatile("" : "+r"(a[i])::"memory");
}

// The operands of an instruction with many registers, ten at a time: "%10, %11, …, %19" is STEPTRAIN_TEN(1).
#define STEPTRAIN_TWO(t) "%" #t "0, %" #t "1"
#define STEPTRAIN_SIX(t) STEPTRAIN_TWO(t) ", %" #t "2, %" #t "3, %" #t "4, %" #t "5"
#define STEPTRAIN_TEN(t) STEPTRAIN_SIX(t) ", %" #t "6, %" #t "7, %" #t "8, %" #t "9"
#define STEPTRAIN_THIRTY STEPTRAIN_TEN() ", " STEPTRAIN_TEN(1) ", " STEPTRAIN_TEN(2) ", "
#define STEPTRAIN_SIXTY STEPTRAIN_THIRTY STEPTRAIN_TEN(3) ", " STEPTRAIN_TEN(4) ", " STEPTRAIN_TEN(5) ", "
#define STEPTRAIN_NINETY STEPTRAIN_SIXTY STEPTRAIN_TEN(6) ", " STEPTRAIN_TEN(7) ", " STEPTRAIN_TEN(8) ", "
#define STEPTRAIN_HELD_4(d, i) "+f"(d[i]), "+f"(d[(i) + 1]), "+f"(d[(i) + 2]), "+f"(d[(i) + 3])
#define STEPTRAIN_HELD_8(d, i) STEPTRAIN_HELD_4(d, i), STEPTRAIN_HELD_4(d, (i) + 4)
#define STEPTRAIN_HELD_16(d, i) STEPTRAIN_HELD_8(d, i), STEPTRAIN_HELD_8(d, (i) + 8)
#define STEPTRAIN_HELD_32(d, i) STEPTRAIN_HELD_16(d, i), STEPTRAIN_HELD_16(d, (i) + 16)
#define STEPTRAIN_HELD_64(d, i) STEPTRAIN_HELD_32(d, i), STEPTRAIN_HELD_32(d, (i) + 32)
#define STEPTRAIN_HELD_40(d, i) STEPTRAIN_HELD_32(d, i), STEPTRAIN_HELD_8(d, (i) + 32)
#define STEPTRAIN_HELD_56(d, i) STEPTRAIN_HELD_40(d, i), STEPTRAIN_HELD_16(d, (i) + 40)
#define STEPTRAIN_HELD_72(d, i) STEPTRAIN_HELD_64(d, i), STEPTRAIN_HELD_8(d, (i) + 64)
#define STEPTRAIN_HELD_96(d, i) STEPTRAIN_HELD_64(d, i), STEPTRAIN_HELD_32(d, (i) + 64)
#define STEPTRAIN_HELD_128(d, i) STEPTRAIN_HELD_64(d, i), STEPTRAIN_HELD_64(d, (i) + 64)

/// wgmma of [64, columns], whose `sums` registers are the operands `registers`, constrained as `held`; the five numbers that
/// follow them are those of a, b, whether their rows are the depth, and whether to add.
#define STEPTRAIN_WGMMA(columns, sums, registers, held, na, nb, nta, ntb, nadd)                          \
  template <bool kMnMajorA, bool kMnMajorB, bool kFresh = false>                                         \
  __device__ inline void wgmma(float(&d)[sums], uint64_t a, uint64_t b) {                                \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #nadd                                              \
                 ", 0;\n"                                                                                \
                 "wgmma.mma_async.sync.aligned.m64n" #columns "k16.f32.bf16.bf16 {" registers "}, %" #na \
                 ", %" #nb ", p, 1, 1, %" #nta ", %" #ntb ";\n}\n"                                       \
                 : held                                                                                  \
                 : "l"(a), "l"(b), "n"(int{kMnMajorA}), "n"(int{kMnMajorB}), "n"(int{!kFresh}));         \
  }

/// d[64, columns] += a[64,16]·b[columns,16]ᵀ of the tiles that the descriptors name; a warpgroup's four warps hold 16
/// rows each, as mma's d in every eight columns. kMnMajorA, kMnMajorB: the rows of a tile are the depth.
/// kFresh: = instead of +=, whatever d holds.
STEPTRAIN_WGMMA(32, 16, STEPTRAIN_TEN() ", " STEPTRAIN_SIX(1), STEPTRAIN_HELD_16(d, 0), 16, 17, 18, 19, 20)
STEPTRAIN_WGMMA(64, 32, STEPTRAIN_THIRTY STEPTRAIN_TWO(3), STEPTRAIN_HELD_32(d, 0), 32, 33, 34, 35, 36)
STEPTRAIN_WGMMA(80, 40, STEPTRAIN_THIRTY STEPTRAIN_TEN(3), STEPTRAIN_HELD_40(d, 0), 40, 41, 42, 43, 44)
STEPTRAIN_WGMMA(112, 56, STEPTRAIN_THIRTY STEPTRAIN_TEN(3) ", " STEPTRAIN_TEN(4) ", " STEPTRAIN_SIX(5),
                STEPTRAIN_HELD_56(d, 0), 56, 57, 58, 59, 60)
STEPTRAIN_WGMMA(128, 64, STEPTRAIN_SIXTY STEPTRAIN_TWO(6) ", %62, %63", STEPTRAIN_HELD_64(d, 0), 64, 65, 66,
                67, 68)
STEPTRAIN_WGMMA(144, 72, STEPTRAIN_SIXTY STEPTRAIN_TEN(6) ", " STEPTRAIN_TWO(7), STEPTRAIN_HELD_72(d, 0), 72,
                73, 74, 75, 76)
STEPTRAIN_WGMMA(192, 96, STEPTRAIN_NINETY STEPTRAIN_SIX(9), STEPTRAIN_HELD_96(d, 0), 96, 97, 98, 99, 100)
STEPTRAIN_WGMMA(256, 128,
                STEPTRAIN_NINETY STEPTRAIN_TEN(9) ", " STEPTRAIN_TEN(10) ", " STEPTRAIN_TEN(
                    11) ", " STEPTRAIN_SIX(12) ", %126, %127",
                STEPTRAIN_HELD_128(d, 0), 128, 129, 130, 131, 132)

/// The same with a from registers: a warp holds its 16 rows as mma's a, in registers that are not to change before the
/// product is waited for; the rows of b's tile are the depth.
#define STEPTRAIN_WGMMA_FROM_REGISTERS(columns, sums, registers, held, na0, na1, na2, na3, nb)               \
  __device__ inline void wgmma_from_registers(float(&d)[sums], const uint32_t(&a)[4], uint64_t b) {          \
    asm volatile(                                                                                            \
        "{\n.reg .pred p;\nsetp.ne.b32 p, 1, 0;\n"                                                           \
        "wgmma.mma_async.sync.aligned.m64n" #columns "k16.f32.bf16.bf16 {" registers "}, {%" #na0 ", %" #na1 \
        ", %" #na2 ", %" #na3 "}, %" #nb ", p, 1, 1, 1;\n}\n"                                                \
        : held                                                                                               \
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));                                               \
  }
STEPTRAIN_WGMMA_FROM_REGISTERS(64, 32, STEPTRAIN_THIRTY STEPTRAIN_TWO(3), STEPTRAIN_HELD_32(d, 0), 32, 33, 34,
                               35, 36)
STEPTRAIN_WGMMA_FROM_REGISTERS(128, 64, STEPTRAIN_SIXTY STEPTRAIN_TWO(6) ", %62, %63",
                               STEPTRAIN_HELD_64(d, 0), 64, 65, 66, 67, 68)

/// After ordinary writes to shared memory that a wgmma or tma_store will read,
/// before the barrier between them.
__device__ inline void fence_proxy_async() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
/// The same of all memory, between copies by TMA and other accesses, of this thread or of one that it has waited for.
__device__ inline void fence_proxy_async_global() {
  asm volatile("fence.proxy.async;" ::: "memory");
}
/// Waits for all 128 threads of the running warpgroup; `id` 1 to 15, one for each warpgroup.
__device__ inline void warpgroup_barrier(int id) {
  asm volatile("bar.sync %0, 128;" ::"r"(id) : "memory");
}
/// Waits for all 256 threads of two warpgroups, or arrives without waiting; `id` as in warpgroup_barrier.
__device__ inline void named_barrier_sync(int id) {
  asm volatile("bar.sync %0, 256;" ::"r"(id) : "memory");
}
__device__ inline void named_barrier_arrive(int id) {
  asm volatile("bar.arrive %0, 256;" ::"r"(id) : "memory");
}

/// Gives registers of the running warpgroup back to the multiprocessor, or takes more.
template <int registers>
__device__ inline void shrink_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(registers));
}
template <int registers>
__device__ inline void grow_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(registers));
}

}  // namespace steptrain::cuda
