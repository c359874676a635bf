// A tile of one head in shared memory, bf16 [kRows][kSize] in chunks of eight elements, for the attention
// kernels on tensor cores. The chunks of a row are permuted by its number, so that the eight rows that
// ldmatrix reads at a time lie in different banks: by row mod 8 where a row is a multiple of 128 bytes,
// else (64 and 192 bytes) by row/2 mod 4 within groups of four.
#pragma once

#include "cuda/attention/problem.h"
#include "cuda/fragments.h"
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

  /// body(row, chunk, element) for this thread's share of the tile; `element` is the place of the chunk in a
  /// tensor [T, heads, size], for tokens from `start` of a sequence and one head. All kThreads threads take
  /// part. A thread walks down the rows, so that its addresses differ by constants.
  template <int kThreads, typename Body>
  __device__ static void share(const AttentionTile& sequence, int32_t start, int32_t head, int32_t heads,
                               int32_t size, Body body) {
    constexpr int kRowChunks = kChunks % 8 == 0 ? kChunks : 4, kDown = kThreads / kRowChunks;
    static_assert(kThreads % kRowChunks == 0 && kRows % kDown == 0);
    const int row = static_cast<int>(threadIdx.x) / kRowChunks,
              chunk = static_cast<int>(threadIdx.x) % kRowChunks;
    int64_t element = ((int64_t{sequence.begin} + start + row) * heads + head) * size + chunk * kEight;
#pragma unroll
    for (int down = 0; down < kRows; down += kDown) {
#pragma unroll
      for (int beside = 0; beside < kChunks; beside += kRowChunks)
        body(row + down, chunk + beside, element + beside * kEight);
      element += int64_t{kDown} * heads * size;
    }
  }

  /// Starts the copy into `tile`, with zeros beyond the sequence and beyond the head's `size`.
  template <int kThreads>
  __device__ static void copy(char* tile, const bf16* from, const AttentionTile& sequence, int32_t start,
                              int32_t head, int32_t heads, int32_t size) {
    share<kThreads>(sequence, start, head, heads, size, [&](int row, int chunk, int64_t element) {
      const bool inside = start + row < sequence.length && chunk * kEight < size;
      cp_async(at(tile, row, chunk), from + (inside ? element : 0), inside);
    });
  }

  /// Writes `tile` back.
  template <int kThreads>
  __device__ static void write(char* tile, bf16* to, const AttentionTile& sequence, int32_t start,
                               int32_t head, int32_t heads, int32_t size) {
    share<kThreads>(sequence, start, head, heads, size, [&](int row, int chunk, int64_t element) {
      if (start + row >= sequence.length || chunk * kEight >= size) return;
      *reinterpret_cast<uint4*>(to + element) = *reinterpret_cast<const uint4*>(at(tile, row, chunk));
    });
  }

  /// K-major, the head is the depth: a[16,16] from (row, k), and two b[16,8], from rows `row` and `row` + 8.
  __device__ static void load_a(uint32_t (&a)[4], char* tile, int row, int k, int lane) {
    ldmatrix(a, at(tile, row + lane % 16, k / kEight + lane / 16));
  }
  __device__ static void load_b(uint32_t (&b)[4], char* tile, int row, int k, int lane) {
    ldmatrix(b, at(tile, row + lane % 8 + lane / 16 * 8, k / kEight + lane / 8 % 2));
  }
  /// MN-major, rows are the depth: two b[16,8], from columns `column` and `column` + 8, rows from k.
  __device__ static void load_b_by_row(uint32_t (&b)[4], char* tile, int k, int column, int lane) {
    ldmatrix_trans(b, at(tile, k + lane % 16, column / kEight + lane / 16));
  }

  /// Writes d[16,8] (see mma), rounded, at (row, column).
  __device__ static void put(char* tile, int row, int column, const float (&d)[4], int lane) {
    const int chunk = column / kEight, within = lane % 4 * 4;
    *reinterpret_cast<uint32_t*>(at(tile, row + lane / 4, chunk) + within) = round_to_bf16_pair(d[0], d[1]);
    *reinterpret_cast<uint32_t*>(at(tile, row + lane / 4 + 8, chunk) + within) =
        round_to_bf16_pair(d[2], d[3]);
  }
};

/// sums[16·kDown, kColumns] = a·bᵀ over the head, with rows of tile a from `row` and of tile b from `column`.
template <typename A, typename B, int kDown, int kColumns, int kSize>
__device__ void multiply_heads(float (&sums)[kDown][kColumns / 8][4], char* a_tile, int row, char* b_tile,
                               int column, int lane) {
#pragma unroll
  for (int i = 0; i < kDown; i++)
#pragma unroll
    for (int j = 0; j < kColumns / 8; j++)
#pragma unroll
      for (int e = 0; e < 4; e++) sums[i][j][e] = 0;
  [[maybe_unused]] constexpr int kUnrolled = kDown * kColumns * kSize > 8192 ? 1 : 2;  // as registers allow
#pragma unroll kUnrolled
  for (int k = 0; k < kSize; k += 16) {
    uint32_t a[kDown][4];
#pragma unroll
    for (int i = 0; i < kDown; i++) A::load_a(a[i], a_tile, row + 16 * i, k, lane);
#pragma unroll
    for (int j = 0; j < kColumns / 16; j++) {
      uint32_t b[4];
      B::load_b(b, b_tile, column + 16 * j, k, lane);
#pragma unroll
      for (int i = 0; i < kDown; i++) {
        mma(sums[i][2 * j], a[i], b[0], b[1]);
        mma(sums[i][2 * j + 1], a[i], b[2], b[3]);
      }
    }
  }
}

/// out[16·kDown, kColumns] += weights[16·kDown, kDepth]·tile, with kDepth rows of the tile and its columns
/// from `column`. load(a, i, k) gives a[16,16] of the weights, for slice i from depth k.
template <typename Tile, int kDown, int kDepth, int kColumns, typename Load>
__device__ void multiply_rows(float (&out)[kDown][kColumns / 8][4], char* tile, int column, int lane,
                              Load load) {
#pragma unroll
  for (int k = 0; k < kDepth; k += 16) {
    uint32_t a[kDown][4];
#pragma unroll
    for (int i = 0; i < kDown; i++) load(a[i], i, k);
#pragma unroll
    for (int j = 0; j < kColumns / 16; j++) {
      uint32_t b[4];
      Tile::load_b_by_row(b, tile, k, column + 16 * j, lane);
#pragma unroll
      for (int i = 0; i < kDown; i++) {
        mma(out[i][2 * j], a[i], b[0], b[1]);
        mma(out[i][2 * j + 1], a[i], b[2], b[3]);
      }
    }
  }
}

/// a[16,16], rounded, from column k of the accumulators of mma.
template <int kColumns>
__device__ void round_to_a(uint32_t (&a)[4], const float (&d)[kColumns][4], int k) {
  const float(&left)[4] = d[k / 8], (&right)[4] = d[k / 8 + 1];
  a[0] = round_to_bf16_pair(left[0], left[1]);
  a[1] = round_to_bf16_pair(left[2], left[3]);
  a[2] = round_to_bf16_pair(right[0], right[1]);
  a[3] = round_to_bf16_pair(right[2], right[3]);
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
