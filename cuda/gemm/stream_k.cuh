// Stream-K: where the last wave of tiles (cuda/gemm/sm90_tiles.cuh) would leave multiprocessors without one, the blocks
// share the tiles of the last one to two waves, each an equal run of their rounds. A block begins with the first rounds of
// the tile that its run ends in, and leaves the sums in workspace; its whole tiles follow; last are the remaining rounds
// of the tile that its run begins in, from the sums that the block before has left. Those sums are f32 as they were in
// registers, so an element is summed in the order in which one block would sum it, and its bits are the same however tiles
// are shared. A run is at least one tile long, so the block before has left its sums by the time that they are wanted: it
// began with them. Blocks draw tickets, so one waits for a block that has begun, and which waits for nobody before it has
// left its sums.
#pragma once

#include <cstdint>

#include "cuda/gemm/parts.cuh"
#include "cuda/sm90_block.cuh"
#include "cuda/sm90_instructions.cuh"

namespace steptrain::cuda {
namespace hopper {

/// Part of the rounds of a tile: all, the first ones, whose sums are left, or the others.
struct Piece {
  int tile, first, end;
};

/// The tiles are the wide ones, banded, then those of half the width in the last column. Of the first `alone` a block takes
/// every gridDim.x-th; the others are shared.
struct StreamK {
  int across = 0;         // wide tiles in a row of tiles
  int wide = 0, all = 0;  // tiles
  int alone = 0;
  int rounds = 0;          // of a tile
  float4* sums = nullptr;  // [block][consumer][a thread's, by four][thread]
  uint32_t* tickets = nullptr;
  uint32_t* left = nullptr;  // [block][consumer]: 1 once the sums are there; the reader sets it back

  static constexpr int kGroupSums = 256 / 8;  // of a thread and a wide tile, by four
  /// A piece of fewer rounds costs more than it saves.
  static constexpr int kLeast = 4;

  /// Where the run of `block` of `blocks` begins: the first rounds of the tile belong to the block before.
  __host__ __device__ Piece begin_of(int block, int blocks) const {
    const int wide_shared = 2 * (wide - alone) * rounds;  // a round of a wide tile counts 2
    const int total = wide_shared + (all - wide) * rounds;
    const auto at = static_cast<int>(static_cast<uint32_t>(total) * static_cast<uint32_t>(block) /
                                     static_cast<uint32_t>(blocks));
    const bool in_wide = at < wide_shared;
    const int within = in_wide ? at / 2 : at - wide_shared;
    int tile = (in_wide ? alone : wide) + within / rounds, round = within % rounds;
    if (round < kLeast) round = 0;
    if (rounds - round < kLeast) tile++, round = 0;
    return {tile, round, rounds};
  }

  /// The block's piece `i`, or one without rounds where it has no more.
  __device__ Piece piece_of(int block, int blocks, int i) const {
    const int own = alone / blocks;
    if (i < own) return {block + i * blocks, 0, rounds};
    const Piece from = begin_of(block, blocks), to = begin_of(block + 1, blocks);
    i -= own;
    if (to.first > 0 && i-- == 0) return {to.tile, 0, to.first};
    const int tile = from.tile + (from.first > 0 ? 1 : 0) + i;
    if (tile < to.tile) return {tile, 0, rounds};
    return {from.tile, from.first, from.first > 0 && tile == to.tile ? rounds : 0};
  }

  /// The running block's ticket, the same for all its threads. The last one sets the counter back.
  __device__ uint32_t draw() const {
    __shared__ uint32_t drawn;
    if (threadIdx.x == 0) {
      drawn = atomicAdd(tickets, 1u);
      if (drawn == gridDim.x - 1) *tickets = 0;
    }
    __syncthreads();
    return drawn;
  }

  /// A consumer's sums of a tile's first rounds, for the next block; and those that the block before has left, where
  /// they are `taken`, else the sums stay as they are. (Loads behind a branch make ptxas serialise the products that
  /// follow.) By all threads of consumer `group` 1 or 2, whose named barrier has that number.
  template <int kSums>
  __device__ void leave(const float (&v)[kSums], uint32_t block, int group) const {
    float4* const to = place(block, group);
#pragma unroll
    for (int i = 0; i < kSums / 4; i++) to[i * kGroup] = {v[4 * i], v[4 * i + 1], v[4 * i + 2], v[4 * i + 3]};
    __threadfence();
    warpgroup_barrier(group);
    if (threadIdx.x % kGroup == 0) store_release(mark(block, group), 1);
  }
  template <int kSums>
  __device__ void take_over(float (&v)[kSums], uint32_t block, int group, bool taken) const {
    if (taken) wait_for_count(mark(block - 1, group), 1);
    const float4* const held = place(block - 1, group);
#pragma unroll
    for (int i = 0; i < kSums / 4; i++)
      load_where(taken, held + i * kGroup, v[4 * i], v[4 * i + 1], v[4 * i + 2], v[4 * i + 3]);
    pin(v);
    wgmma_fence();
    if (!taken) return;
    warpgroup_barrier(group);  // all have seen the mark
    if (threadIdx.x % kGroup == 0) *mark(block - 1, group) = 0;
  }

 private:
  __device__ int at(uint32_t block, int group) const {
    return static_cast<int>(block) * kConsumers + (group - 1);
  }
  __device__ uint32_t* mark(uint32_t block, int group) const {
    return left + at(block, group);
  }
  __device__ float4* place(uint32_t block, int group) const {
    return sums + at(block, group) * (kGroupSums * kGroup) + threadIdx.x % kGroup;
  }
};

/// Store, for tiles that blocks share.
struct StoreShared : Store {
  StreamK plan;
};
template <typename Epilogue>
constexpr bool kShares = false;
template <>
inline constexpr bool kShares<StoreShared> = true;

/// body(piece) for each piece of the block with ticket `block`, in order. Each is found anew, so that little is kept in registers.
template <typename F>
__device__ void each_piece(const StreamK& plan, uint32_t block, F body) {
#pragma unroll 1
  for (int i = 0;; i++) {
    forget(block);
    const Piece piece = plan.piece_of(static_cast<int>(block), static_cast<int>(gridDim.x), i);
    if (piece.end == 0) return;
    body(piece);
  }
}

}  // namespace hopper
}  // namespace steptrain::cuda
