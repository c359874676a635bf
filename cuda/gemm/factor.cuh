// Tiles of a product's factors in shared memory, and the ring of them, for products by mma.sync. The depth of
// a product is its sum over k; the outer extent of a factor is its other one, m or n.
#pragma once

#include "cuda/fragments.h"
#include "cuda/gemm/parts.cuh"

namespace steptrain::cuda {

constexpr int kStep = 16;  // depth of one mma

/// Eight elements of a bf16 factor, zeros outside it.
struct Chunk {
  const bf16* data;
  bool inside;
};
__device__ inline Chunk chunk_of(const Factor& f, int64_t row, int64_t column) {
  const bool inside = row < f.rows && column < f.columns;
  return {static_cast<const bf16*>(f.data) + (inside ? row * f.columns + column : 0), inside};
}

/// A tile of one factor in chunks of eight elements: K-major [kOuter][kDepth], or MN-major [kDepth][kOuter].
/// The chunks of a row are permuted by its number, so that the eight rows that ldmatrix reads at a time
/// lie in different banks.
template <int kOuter, int kDepth, bool kKMajor, int kThreads>
struct FactorTile {
  static constexpr int kChunks = (kKMajor ? kDepth : kOuter) / kEight;  // per row
  static constexpr int kTotal = kOuter * kDepth / kEight;
  static constexpr int kPerThread = (kTotal + kThreads - 1) / kThreads;
  static constexpr int kBytes = kOuter * kDepth * 2;

  __device__ static char* at(char* tile, int row, int chunk) {
    // Short rows share the banks of a line of 128 bytes: four of 32 bytes, two of 64.
    const int permuted = chunk ^ (kChunks == 2 ? row >> 2 & 1 : kChunks == 4 ? row >> 1 & 3 : row & 7);
    return tile + (row * kChunks + permuted) * 16;
  }

  /// body(i, row, chunk) for each chunk of a tile that the running thread fills.
  template <typename F>
  __device__ static void each_chunk(F body) {
#pragma unroll
    for (int i = 0; i < kPerThread; i++) {
      const int at = i * kThreads + static_cast<int>(threadIdx.x);
      if (kTotal % kThreads == 0 || at < kTotal) body(i, at / kChunks, at % kChunks);
    }
  }

  /// Starts copies. locate(row, chunk) gives the aligned Chunk to copy.
  template <typename F>
  __device__ static void copy(char* tile, F locate) {
    each_chunk([&](int, int row, int chunk) {
      const Chunk from = locate(row, chunk);
      cp_async(at(tile, row, chunk), from.data, from.inside);
    });
  }
  /// Starts the copy of the tile at (outer, depth) of a factor.
  __device__ static void copy(char* tile, const Factor& f, int64_t outer, int64_t depth) {
    const int64_t row0 = kKMajor ? outer : depth, column0 = kKMajor ? depth : outer;
    copy(tile, [&](int row, int chunk) { return chunk_of(f, row0 + row, column0 + chunk * kEight); });
  }

  /// The same through registers, for any factor. Fetched is what a thread has loaded and not yet stored.
  struct Fetched {
    uint4 chunk[kPerThread];
  };
  /// fetch(row, chunk, v): eight elements of the tile.
  template <typename F>
  __device__ static Fetched load(F fetch_chunk) {
    Fetched held = {};
    each_chunk([&](int i, int row, int chunk) {
      float v[kEight];
      fetch_chunk(row, chunk, v);
      held.chunk[i] = make_uint4(round_to_bf16_pair(v[0], v[1]), round_to_bf16_pair(v[2], v[3]),
                                 round_to_bf16_pair(v[4], v[5]), round_to_bf16_pair(v[6], v[7]));
    });
    return held;
  }
  __device__ static Fetched load(const Factor& f, const Dropout* dropout, int64_t outer, int64_t depth) {
    const int64_t row0 = kKMajor ? outer : depth, column0 = kKMajor ? depth : outer;
    return load([&](int row, int chunk, float(&v)[kEight]) {
      if (dropout) {
        fetch_dropped(f, *dropout, row0 + row, column0 + chunk * kEight, v);
      } else {
        fetch(f, row0 + row, column0 + chunk * kEight, v);
      }
    });
  }
  __device__ static void store(char* tile, const Fetched& held) {
    each_chunk(
        [&](int i, int row, int chunk) { *reinterpret_cast<uint4*>(at(tile, row, chunk)) = held.chunk[i]; });
  }
};

/// a[16,16] of rows from `outer` and depth from `k`, as mma wants it.
template <typename Tile, bool kKMajor>
__device__ void load_a(uint32_t (&a)[4], char* tile, int outer, int k, int lane) {
  if constexpr (kKMajor) {
    ldmatrix(a, Tile::at(tile, outer + lane % 16, k / kEight + lane / 16));
  } else {
    ldmatrix_trans(a, Tile::at(tile, k + lane % 8 + lane / 16 * 8, outer / kEight + lane / 8 % 2));
  }
}

/// Two b[16,8], of columns from `outer` and from `outer` + 8: {b0, b1} of the first, of the second.
template <typename Tile, bool kKMajor>
__device__ void load_b(uint32_t (&b)[4], char* tile, int outer, int k, int lane) {
  if constexpr (kKMajor) {
    ldmatrix(b, Tile::at(tile, outer + lane % 8 + lane / 16 * 8, k / kEight + lane / 8 % 2));
  } else {
    ldmatrix_trans(b, Tile::at(tile, k + lane % 16, outer / kEight + lane / 16));
  }
}

/// Walks `rounds` tiles of the depth through a ring of kStages buffers: copy(stage, round) starts asynchronous copies into
/// a buffer; once they are there, arrived(stage, round) is called by the thread that started them, then
/// multiply(stage). A group of copies is committed for absent rounds too, so that the number of pending groups tells
/// which round has arrived.
template <int kStages, typename Copy, typename Arrived, typename Multiply>
__device__ void run_ring(int rounds, Copy copy, Arrived arrived, Multiply multiply) {
  for (int stage = 0; stage < kStages - 1; stage++) {
    if (stage < rounds) copy(stage, stage);
    cp_async_commit();
  }
  for (int round = 0; round < rounds; round++) {
    cp_async_wait<kStages - 2>();
    arrived(round % kStages, round);
    __syncthreads();  // all threads see this round, and none still reads the one before
    const int next = round + kStages - 1;
    if (next < rounds) copy(next % kStages, next);
    cp_async_commit();
    multiply(round % kStages);
  }
}

}  // namespace steptrain::cuda
