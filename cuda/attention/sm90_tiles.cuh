// What the attention kernels of sm_90 share. The tensors are matrices [T, heads·D] to TMA, so that a tile at
// a sequence's end holds tokens of the next one.
#pragma once

#include "cuda/attention/problem.h"
#include "cuda/runtime/tensor_map.h"
#include "cuda/sm90_block.cuh"
#include "cuda/sm90_instructions.cuh"
#include "cuda/storage.cuh"

namespace steptrain::cuda {
namespace hopper {

/// kRows tokens of one head in shared memory, 1024-byte aligned: for each 64 elements of the head a box of
/// all rows, 128 bytes each, chunks of 16 bytes permuted by the row mod 8.
template <int kRows, int kSize>
struct BoxTile {
  static constexpr int kBoxes = kSize / kBoxColumns;
  static constexpr int kBoxBytes = kRows * kBoxColumns * 2;
  static constexpr int kBytes = kBoxes * kBoxBytes;
  static constexpr int kChunks = kSize / kEight;

  __device__ static char* at(char* tile, int row, int chunk) {
    return tile + chunk / 8 * kBoxBytes + row * 128 + ((chunk ^ row) & 7) * 16;
  }

  /// Starts the copy of rows token … token + kRows of a head; `full` expects kBytes. By one thread.
  __device__ static void fetch(char* tile, const CUtensorMap* from, int64_t token, int32_t head,
                               Barrier* full) {
#pragma unroll
    for (int i = 0; i < kBoxes; i++)
      copy_box(tile + i * kBoxBytes, from, static_cast<int32_t>(token), head * kSize + i * kBoxColumns, full);
  }

  /// For multiply_group: rows from `row`, a multiple of 8, the head as depth, from k.
  __device__ static uint64_t along(char* tile, int row, int k) {
    return box_descriptor(tile + k / kBoxColumns * kBoxBytes + row * 128, 16) + k % kBoxColumns * 2 / 16;
  }
  /// For multiply_held: rows as depth, from k.
  __device__ static uint64_t across(char* tile, int k) {
    return box_descriptor(tile, kBoxBytes) + k * 128 / 16;
  }

  /// Zeros in the rows from `first` on, by both consumers, each its share: before publish_cleared().
  __device__ static void clear(char* tile, int first) {
#pragma unroll 1
    for (int i = static_cast<int>(threadIdx.x) - kGroup; i < (kRows - first) * kChunks;
         i += kConsumers * kGroup)
      *reinterpret_cast<uint4*>(at(tile, first + i / kChunks, i % kChunks)) = make_uint4(0, 0, 0, 0);
  }

  /// Rounds a consumer's sums, times the factor of a thread's upper and lower rows, and writes them to the
  /// tokens from `start` of one head: through the 64 rows of `tile` from `row`, which that consumer alone has
  /// read.
  __device__ static void write(char* tile, int row, const float (&sums)[kSize / 2], const float (&factor)[2],
                               bf16* to, const AttentionTile& sequence, int32_t start, int32_t head,
                               int32_t heads) {
    const int thread = static_cast<int>(threadIdx.x) % kGroup, lane = thread % 32;
    const int own = row + thread / 32 * 16 + lane / 4;
#pragma unroll
    for (int j = 0; j < kChunks; j++)
#pragma unroll
      for (int half = 0; half < 2; half++)
        *reinterpret_cast<uint32_t*>(at(tile, own + 8 * half, j) + lane % 4 * 4) = round_to_bf16_pair(
            sums[4 * j + 2 * half] * factor[half], sums[4 * j + 2 * half + 1] * factor[half]);
    group_barrier(static_cast<int>(threadIdx.x) / kGroup);
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

/// After clear() and before the products, by both consumers: either's products read what the other cleared.
__device__ inline void publish_cleared() {
  constexpr int kBarrier = 5;  // after those of groups and turns
  publish_writes();
  wait_at_barrier(kBarrier);
}

/// sums[64, kColumns] = rows of a from `row`, times all rows of b, over the head: starts the products.
template <typename A, typename B, int kSize, int kSums>
__device__ void score(float (&sums)[kSums], char* a, int row, char* b) {
  open_group();
  multiply_group<false, false, true>(sums, A::along(a, row, 0), B::along(b, 0, 0));
#pragma unroll
  for (int k = kStep; k < kSize; k += kStep)
    multiply_group<false, false>(sums, A::along(a, row, k), B::along(b, 0, k));
  close_group();
}

/// What a consumer holds of [64, kColumns], rounded, as multiply_held's a. The products read these registers
/// until they are waited for: pin() after that wait keeps them from being used for anything else before.
template <int kSums>
struct Held {
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

/// out[64, D] += held · tile, whose rows are the depth: starts the products. After the wait for them both out
/// and held are to be pinned.
template <typename Tile, int kSums, int kOut>
__device__ void weigh(float (&out)[kOut], Held<kSums>& held, char* tile) {
  pin(out);
  held.pin();
  open_group();
#pragma unroll
  for (int k = 0; k < kSums / 8; k++) multiply_held(out, held.a[k], Tile::across(tile, k * kStep));
  close_group();
}

}  // namespace hopper
}  // namespace steptrain::cuda
