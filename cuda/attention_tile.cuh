// A tile of one head in shared memory, bf16 [kRows][kSize] in chunks of eight elements, for the tensor-core
// attention kernels. Chunks of a row are permuted by the row, so that the eight rows that load_matrices reads
// at a time lie in different banks: by row mod 8 where a row is a multiple of 128 bytes, else (64 and 192
// bytes) by row/2 mod 4 within groups of four.
#pragma once

#include "cuda/attention.h"
#include "cuda/storage.cuh"

namespace steptrain::cuda {

template <int kRows, int kSize>
struct HeadTile {
  static constexpr int kChunks = kSize / kEight;
  static constexpr int kBytes = kRows * kSize * 2;
  static_assert(kChunks % 4 == 0);

  __device__ static char* at(char* tile, int row, int chunk) {
    const int permuted = kChunks % 8 == 0 ? chunk ^ (row & 7) : chunk ^ (row >> 1 & 3);
    return tile + (row * kChunks + permuted) * 16;
  }

  /// Starts the copy of tokens start … start + kRows of a sequence, of one head of `heads`; zeros beyond the
  /// sequence and beyond the head's `size`. All kThreads threads of the block take part.
  template <int kThreads>
  __device__ static void copy(char* tile, const bf16* from, const AttentionTile& sequence, int32_t start,
                              int32_t head, int32_t heads, int32_t size) {
    static_assert(kRows * kChunks % kThreads == 0);
#pragma unroll
    for (int i = 0; i < kRows * kChunks / kThreads; i++) {
      const int index = i * kThreads + static_cast<int>(threadIdx.x);
      const int row = index / kChunks, chunk = index % kChunks;
      const bool inside = start + row < sequence.length && chunk * kEight < size;
      const int64_t element = ((sequence.begin + start + row) * heads + head) * size + chunk * kEight;
      copy_async(at(tile, row, chunk), from + (inside ? element : 0), inside);
    }
  }

  /// The opposite: writes what lies in `tile`.
  template <int kThreads>
  __device__ static void write(char* tile, bf16* to, const AttentionTile& sequence, int32_t start,
                               int32_t head, int32_t heads, int32_t size) {
#pragma unroll
    for (int i = 0; i < kRows * kChunks / kThreads; i++) {
      const int index = i * kThreads + static_cast<int>(threadIdx.x);
      const int row = index / kChunks, chunk = index % kChunks;
      if (start + row >= sequence.length || chunk * kEight >= size) continue;
      const int64_t element = ((sequence.begin + start + row) * heads + head) * size + chunk * kEight;
      *reinterpret_cast<uint4*>(to + element) = *reinterpret_cast<const uint4*>(at(tile, row, chunk));
    }
  }

  /// Rows as the outer extent, the head as depth: a[16,16] from (row, k), and two b[16,8], of rows `row` and
  /// `row` + 8.
  __device__ static void load_a(uint32_t (&a)[4], char* tile, int row, int k, int lane) {
    load_matrices(a, at(tile, row + lane % 16, k / kEight + lane / 16));
  }
  __device__ static void load_b(uint32_t (&b)[4], char* tile, int row, int k, int lane) {
    load_matrices(b, at(tile, row + lane % 8 + lane / 16 * 8, k / kEight + lane / 8 % 2));
  }
  /// Rows as depth: two b[16,8], of columns `column` and `column` + 8, rows from k.
  __device__ static void load_b_by_row(uint32_t (&b)[4], char* tile, int k, int column, int lane) {
    load_matrices_transposed(b, at(tile, k + lane % 16, column / kEight + lane / 16));
  }

  /// Puts the pairs of d[16,8] (see multiply_add) at (row, column), rounded.
  __device__ static void put(char* tile, int row, int column, const float (&d)[4], int lane) {
    const int chunk = column / kEight, within = lane % 4 * 4;
    *reinterpret_cast<uint32_t*>(at(tile, row + lane / 4, chunk) + within) = round_to_bf16_pair(d[0], d[1]);
    *reinterpret_cast<uint32_t*>(at(tile, row + lane / 4 + 8, chunk) + within) =
        round_to_bf16_pair(d[2], d[3]);
  }
};

/// sums[16, kColumns] = a · bᵀ: 16 rows of tile a from `row`, all rows of tile b, over the head.
template <typename A, typename B, int kColumns, int kSize>
__device__ void multiply_heads(float (&sums)[kColumns / 8][4], char* a_tile, int row, char* b_tile,
                               int lane) {
#pragma unroll
  for (int j = 0; j < kColumns / 8; j++)
#pragma unroll
    for (int i = 0; i < 4; i++) sums[j][i] = 0;
#pragma unroll kSize <= 64 ? kSize / 16 : 2
  for (int k = 0; k < kSize; k += 16) {
    uint32_t a[4];
    A::load_a(a, a_tile, row, k, lane);
#pragma unroll
    for (int j = 0; j < kColumns / 16; j++) {
      uint32_t b[4];
      B::load_b(b, b_tile, 16 * j, k, lane);
      multiply_add(sums[2 * j], a, b[0], b[1]);
      multiply_add(sums[2 * j + 1], a, b[2], b[3]);
    }
  }
}

/// out[16, kSize] += weights[16, kDepth] · tile[kDepth, kSize], the weights rounded to bf16.
template <typename Tile, int kDepth, int kSize>
__device__ void multiply_rows(float (&out)[kSize / 8][4], const float (&weights)[kDepth / 8][4], char* tile,
                              int lane) {
#pragma unroll
  for (int k = 0; k < kDepth / 16; k++) {
    const uint32_t a[4] = {round_to_bf16_pair(weights[2 * k][0], weights[2 * k][1]),
                           round_to_bf16_pair(weights[2 * k][2], weights[2 * k][3]),
                           round_to_bf16_pair(weights[2 * k + 1][0], weights[2 * k + 1][1]),
                           round_to_bf16_pair(weights[2 * k + 1][2], weights[2 * k + 1][3])};
#pragma unroll
    for (int j = 0; j < kSize / 16; j++) {
      uint32_t b[4];
      Tile::load_b_by_row(b, tile, 16 * k, 16 * j, lane);
      multiply_add(out[2 * j], a, b[0], b[1]);
      multiply_add(out[2 * j + 1], a, b[2], b[3]);
    }
  }
}

/// body(std::integral_constant of the padded head size) for a head of `size`.
template <typename F>
void by_head_size(int64_t size, F body) {
  if (size <= 32) return body(std::integral_constant<int, 32>{});
  if (size <= 64) return body(std::integral_constant<int, 64>{});
  if (size <= 96) return body(std::integral_constant<int, 96>{});
  if (size <= 128) return body(std::integral_constant<int, 128>{});
  body(std::integral_constant<int, 256>{});
}

}  // namespace steptrain::cuda
