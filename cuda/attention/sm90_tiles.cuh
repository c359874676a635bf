// What the attention kernels of sm_90 share. For TMA the tensors are matrices [T, heads·D], so that a tile at
// the end of a sequence holds tokens of the next one.
#pragma once

#include "cuda/attention/problem.h"
#include "cuda/runtime/tensor_map.h"
#include "cuda/sm90_block.cuh"
#include "cuda/sm90_instructions.cuh"
#include "cuda/storage.cuh"

namespace steptrain::cuda {
namespace hopper {

/// kRows tokens of one head in shared memory, 1024-byte aligned: a box of all rows for each 64 elements of
/// the head. A row of a box is 128 bytes, in chunks of 16 bytes permuted by the row mod 8.
template <int kRows, int kSize>
struct BoxTile {
  static constexpr int kBoxes = kSize / kBoxColumns;
  static constexpr int kBoxBytes = kRows * kBoxColumns * 2;
  static constexpr int kBytes = kBoxes * kBoxBytes;
  static constexpr int kChunks = kSize / kEight;

  __device__ static char* at(char* tile, int row, int chunk) {
    return tile + chunk / 8 * kBoxBytes + row * 128 + ((chunk ^ row) & 7) * 16;
  }

  /// Starts the load of rows token … token + kRows of a head; `full` expects kBytes. By one thread.
  __device__ static void fetch(char* tile, const CUtensorMap* from, int64_t token, int32_t head,
                               Barrier* full) {
#pragma unroll
    for (int i = 0; i < kBoxes; i++)
      tma_load(tile + i * kBoxBytes, from, static_cast<int32_t>(token), head * kSize + i * kBoxColumns, full);
  }

  /// K-major, for wgmma: rows from `row`, a multiple of 8; the head is the depth, from k.
  __device__ static uint64_t k_major(char* tile, int row, int k) {
    return matrix_descriptor(tile + k / kBoxColumns * kBoxBytes + row * 128, 16) + k % kBoxColumns * 2 / 16;
  }
  /// MN-major, for wgmma_from_registers: rows are the depth, from k.
  __device__ static uint64_t mn_major(char* tile, int k) {
    return matrix_descriptor(tile, kBoxBytes) + k * 128 / 16;
  }

  /// Writes zeros to the rows from `first` on, by both consumers, half each. wait_for_cleared() must follow.
  __device__ static void clear(char* tile, int first) {
#pragma unroll 1
    for (int i = static_cast<int>(threadIdx.x) - kGroup; i < (kRows - first) * kChunks;
         i += kConsumers * kGroup)
      *reinterpret_cast<uint4*>(at(tile, first + i / kChunks, i % kChunks)) = make_uint4(0, 0, 0, 0);
  }

  /// Multiplies a consumer's sums by the factors of a thread's upper and lower rows, rounds them and writes
  /// them to the tokens from `start` of one head,
  /// through the 64 rows of `tile` from `row`, which no other consumer reads.
  __device__ static void write(char* tile, int row, const float (&sums)[kSize / 2], const float (&factor)[2],
                               bf16* to, const AttentionTile& sequence, int32_t start, int32_t head,
                               int32_t heads) {
    const int thread = static_cast<int>(threadIdx.x) % kGroup, lane = thread % 32;
    const int own = row + own_row();
#pragma unroll
    for (int j = 0; j < kChunks; j++)
#pragma unroll
      for (int half = 0; half < 2; half++)
        *reinterpret_cast<uint32_t*>(at(tile, own + 8 * half, j) + lane % 4 * 4) = round_to_bf16_pair(
            sums[4 * j + 2 * half] * factor[half], sums[4 * j + 2 * half + 1] * factor[half]);
    warpgroup_barrier(static_cast<int>(threadIdx.x) / kGroup);
    store_rows(tile, row, to, sequence, start, head, heads);
  }

  /// Copies a consumer's 64 rows of `tile` from `row` to the tokens from `start` that are in the sequence.
  __device__ static void store_rows(char* tile, int row, bf16* to, const AttentionTile& sequence,
                                    int32_t start, int32_t head, int32_t heads) {
    const int thread = static_cast<int>(threadIdx.x) % kGroup;
    constexpr int kDown = kGroup / kChunks;  // rows at a time
#pragma unroll
    for (int down = 0; down < kGroupRows; down += kDown) {
      const int at_row = down + thread / kChunks, chunk = thread % kChunks;
      if (start + at_row >= sequence.length) break;
      const int64_t token = sequence.begin + start + at_row;
      *reinterpret_cast<uint4*>(to + (token * heads + head) * kSize + chunk * kEight) =
          *reinterpret_cast<const uint4*>(at(tile, row + at_row, chunk));
    }
  }
};

/// After clear() and before the products, by both consumers:
/// the products of each read what the other cleared.
__device__ inline void wait_for_cleared() {
  constexpr int kBarrier = 5;  // the next after those of warpgroups and turns
  fence_proxy_async();
  named_barrier_sync(kBarrier);
}

/// Starts the products sums[64, kColumns] = a·bᵀ over the head, with rows of a from `row` and all rows of b.
template <typename A, typename B, int kSize, int kSums>
__device__ void multiply_tiles(float (&sums)[kSums], char* a, int row, char* b) {
  wgmma_fence();
  wgmma<false, false, true>(sums, A::k_major(a, row, 0), B::k_major(b, 0, 0));
#pragma unroll
  for (int k = kStep; k < kSize; k += kStep)
    wgmma<false, false>(sums, A::k_major(a, row, k), B::k_major(b, 0, k));
  wgmma_commit();
}

/// A thread's share of a consumer's [64, kColumns], rounded, as A from registers. The products read these
/// registers until they have been waited for:
/// pin() after that wait keeps the compiler from reusing them earlier.
template <int kSums>
struct RegisterFactor {
  uint32_t a[kSums / 8][4];
  __device__ void pin() {
#pragma unroll
    for (int k = 0; k < kSums / 8; k++) cuda::pin(a[k]);
  }
  __device__ void round(const float (&sums)[kSums]) {
#pragma unroll
    for (int k = 0; k < kSums / 8; k++)
#pragma unroll
      for (int i = 0; i < 4; i++) a[k][i] = round_to_bf16_pair(sums[8 * k + 2 * i], sums[8 * k + 2 * i + 1]);
  }
};

/// Starts the products out[64, D] += factor_a·tile, where the rows of the tile are the depth. After the wait
/// for them both `out` and `factor_a` must be pinned.
template <typename Tile, int kSums, int kOut>
__device__ void multiply_registers(float (&out)[kOut], RegisterFactor<kSums>& factor_a, char* tile) {
  pin(out);
  factor_a.pin();
  wgmma_fence();
#pragma unroll
  for (int k = 0; k < kSums / 8; k++)
    wgmma_from_registers(out, factor_a.a[k], Tile::mn_major(tile, k * kStep));
  wgmma_commit();
}

}  // namespace hopper
}  // namespace steptrain::cuda
