// What Hopper's products (cuda/gemm/sm90_tiles.cuh) load and where: the ring of stages in shared memory, the tiles of
// a block, and the thread that loads their rounds by TMA.
#pragma once

#include <type_traits>

#include "cuda/gemm/parts.cuh"
#include "cuda/gemm/stream_k.cuh"
#include "cuda/runtime/tensor_map.h"
#include "cuda/sm90_block.cuh"
#include "cuda/sm90_instructions.cuh"

namespace steptrain::cuda {
namespace hopper {

constexpr int kRows = 128;
constexpr int kDepth = kBoxColumns;         // of a stage
constexpr int kBoxBytes = 64 * kDepth * 2;  // of 64 K-major rows, or 64 MN-major columns
constexpr int kStoreBytes = 64 * 128;       // of a box of 64 rows by 64 columns of outputs

/// Shared memory: stages, each a tile of a and one of b; the consumers' boxes of outputs; masks (TileMask); the stages'
/// barriers.
template <int kColumns, bool kMasked>
struct TileRing {
  static constexpr int kStages = kColumns == 128 ? 6 : 4;
  static constexpr int kBoxes = kMasked ? 1 : 2;  // of a consumer's outputs; of two one fills as one is read
  static constexpr int kBytesA = kRows * kDepth * 2, kBytesB = kColumns * kDepth * 2;
  static constexpr int kStageBytes = kBytesA + kBytesB;
  static constexpr int kBytes = kStages * kStageBytes;
  static constexpr int kMasks = kBytes + kConsumers * kBoxes * kStoreBytes;  // where they lie
  static constexpr int kBarriers =
      kMasks + (kMasked ? 2 * kRows * kColumns / 8 + 4 * int{sizeof(Barrier)} : 0);
  static constexpr int kShared = kBarriers + 2 * kStages * int{sizeof(Barrier)} + 1024;

  char* base;
  __device__ char* a_tile(int stage) const { return base + stage * kStageBytes; }
  __device__ char* b_tile(int stage) const { return a_tile(stage) + kBytesA; }
  __device__ char* boxes(int consumer) const { return base + kBytes + consumer * kBoxes * kStoreBytes; }
  __device__ Barrier* full(int stage) const { return reinterpret_cast<Barrier*>(base + kBarriers) + stage; }
  __device__ Barrier* empty(int stage) const { return full(kStages + stage); }

  /// fence_barrier_init() must follow.
  __device__ void init() const {
    for (int stage = 0; stage < kStages; stage++) {
      mbarrier_init(full(stage), 1);
      mbarrier_init(empty(stage), kConsumerWarps);
    }
  }
};

/// Whether tiles may be cut into two.
constexpr bool cuts(int columns) {
  return columns == 256;
}
/// Rows of a K-major box of b.
constexpr int box_rows(int columns) {
  return cuts(columns) ? columns / 2 : columns;
}

/// The factors of the frozen product and of the LoRA pair, and the output where TMA stores it.
struct TileMaps {
  CUtensorMap a, b, lora_a, lora_b, out;
  bool sends;
  int band;  // rows of tiles that are walked down before the next column of tiles
};
/// The same with the twin, whose a is p's; `out` and `twin_out` are gate and up.
struct TwinTileMaps : TileMaps {
  CUtensorMap twin_b, twin_lora_a, twin_lora_b, twin_out, y;
};
template <typename Epilogue>
using TileMapsOf = std::conditional_t<kTwin<Epilogue>, TwinTileMaps, TileMaps>;

/// As tile_place, in 32 bits: a tile is placed while its block has nothing else to do.
__device__ inline TilePlace banded_place(int index, int down, int across, int band, int columns) {
  const int size = band * across, from = index / size * band, within = index % size;
  const int height = down - from < band ? down - from : band;
  return {int64_t{from + within % height} * kRows, int64_t{within / height} * columns};
}

/// The tiles of a block, in order, and how many rounds they have, of kDepth each.
template <int kColumns, typename Epilogue>
struct TileWalk {
  static constexpr bool kHalves = kTwin<Epilogue>, kStreamK = kShares<Epilogue>;
  static constexpr bool kCuts = !kHalves && cuts(kColumns);
  static constexpr int kTileColumns = tile_columns<Epilogue>(kColumns);
  const Product& p;
  const Epilogue& epilogue;
  const TileMaps& maps;
  uint32_t ticket = 0;  // of the block, where blocks share tiles
  int down, across, tiles;
  int own_lora_rounds, lora_rounds, rounds;

  /// By all threads of the block, in its turn.
  __device__ TileWalk(const Product& p, const Epilogue& epilogue, const TileMaps& maps)
      : p(p), epilogue(epilogue), maps(maps) {
    if constexpr (kStreamK) ticket = epilogue.plan.draw();
    down = static_cast<int>((p.rows + kRows - 1) / kRows);
    across = static_cast<int>((p.columns + kTileColumns - 1) / kTileColumns);
    tiles = down * across;
    own_lora_rounds = rounds_of(p.rank);
    lora_rounds = own_lora_rounds + (kHalves ? rounds_of(twin_of(epilogue, p).rank) : 0);
    rounds = rounds_of(p.depth);
  }
  __device__ static int rounds_of(int64_t depth) { return static_cast<int>((depth + kDepth - 1) / kDepth); }

  /// body.operator()<columns>(tile, first, end) for each tile of the block, and the rounds of the frozen product that it
  /// takes: all but where blocks share tiles. Where the last tiles are no more than half of the blocks, each is cut into
  /// two: a block for each half.
  template <typename F>
  __device__ void each(F body) const {
    if constexpr (kStreamK) {
      const StreamK& plan = epilogue.plan;
      return each_piece(plan, ticket, [&](const Piece& piece) {
        if (piece.tile < plan.wide)
          return body.template operator()<kColumns>(
              banded_place(piece.tile, down, plan.across, maps.band, kColumns), piece.first, piece.end);
        const TilePlace last{int64_t{piece.tile - plan.wide} * kRows, int64_t{plan.across} * kColumns};
        body.template operator()<kColumns / 2>(last, piece.first, piece.end);
      });
    }
    const int blocks = static_cast<int>(gridDim.x), block = static_cast<int>(blockIdx.x);
    const int last = tiles % blocks;
    const bool cut = kCuts && 2 * last <= blocks;
    const auto place_of = [&](int index) {
      return banded_place(index, down, across, maps.band, kTileColumns);
    };
    for (int index = block; index < (cut ? tiles - last : tiles); index += blocks)
      body.template operator()<kColumns>(place_of(index), 0, rounds);
    if constexpr (kCuts) {
      if (!cut || block >= 2 * last) return;
      TilePlace tile = place_of(tiles - last + block / 2);
      tile.column += block % 2 * (kColumns / 2);
      if (tile.column < p.columns) body.template operator()<kColumns / 2>(tile, 0, rounds);
    }
  }
};

/// Loads the tile of one factor: one box where it is K-major, a box for each 64 columns where it is MN-major.
template <bool kKMajor, int kOuter>
__device__ void copy_factor(char* to, const CUtensorMap* factor, int32_t outer, int32_t depth,
                            Barrier* barrier) {
  if constexpr (kKMajor) {
    tma_load(to, factor, outer, depth, barrier);
  } else {
#pragma unroll
    for (int i = 0; i < kOuter / 64; i++)
      tma_load(to + i * kBoxBytes, factor, depth, outer + 64 * i, barrier);
  }
}

/// Loads the rounds of each tile of the block, its LoRA pair's first. By one thread.
template <Layout kLayout, typename Ring, typename Walk, typename Maps>
__device__ void load_tiles(const Product& p, const Maps& maps, const Ring& ring, const Walk& walk) {
  constexpr bool kKMajorA = a_k_major(kLayout), kKMajorB = b_k_major(kLayout);
  RingPlace<Ring::kStages> place;
  walk.each([&]<int kWidth>(const TilePlace& tile, int first, int end) {
    const auto row = static_cast<int32_t>(tile.row), column = static_cast<int32_t>(tile.column);
    // The stage's barrier once the stage is free; in the first round all are: the phase before the first counts as ended.
    const auto take_stage = [&] {
      mbarrier_wait(ring.empty(place.stage), place.parity ^ 1);
      mbarrier_expect_tx(ring.full(place.stage), Ring::kBytesA + kWidth * kDepth * 2);
      return ring.full(place.stage);
    };
    const auto copy_b = [&](const CUtensorMap* b, int32_t depth, Barrier* barrier) {
      char* const to = ring.b_tile(place.stage);
      if constexpr (kKMajorB) {
#pragma unroll
        for (int of = 0; of < kWidth; of += box_rows(Walk::kTileColumns))
          tma_load(to + of * kDepth * 2, b, column + of, depth, barrier);
      } else {
        copy_factor<false, kWidth>(to, b, column, depth, barrier);
      }
    };
    for (int round = 0; round < walk.lora_rounds && first == 0; round++, place.advance()) {
      Barrier* const barrier = take_stage();
      if constexpr (Walk::kHalves) {
        // The other half is zeros, from a box below the matrix.
        const bool of_twin = round >= walk.own_lora_rounds;
        const int32_t depth = (of_twin ? round - walk.own_lora_rounds : round) * kDepth,
                      below = static_cast<int32_t>(p.columns);
        const CUtensorMap* const pair_b = of_twin ? &maps.twin_lora_b : &maps.lora_b;
        char* const b = ring.b_tile(place.stage);
        tma_load(ring.a_tile(place.stage), of_twin ? &maps.twin_lora_a : &maps.lora_a, row, depth, barrier);
        tma_load(b, pair_b, of_twin ? below : column, depth, barrier);
        tma_load(b + Ring::kBytesB / 2, pair_b, of_twin ? column : below, depth, barrier);
      } else {
        copy_factor<kKMajorA, kRows>(ring.a_tile(place.stage), &maps.lora_a, row, round * kDepth, barrier);
        copy_b(&maps.lora_b, round * kDepth, barrier);
      }
    }
    for (int round = first; round < end; round++, place.advance()) {
      Barrier* const barrier = take_stage();
      const int32_t depth = round * kDepth;
      copy_factor<kKMajorA, kRows>(ring.a_tile(place.stage), &maps.a, row, depth, barrier);
      if constexpr (Walk::kHalves) {
        char* const b = ring.b_tile(place.stage);
        tma_load(b, &maps.b, column, depth, barrier);
        tma_load(b + Ring::kBytesB / 2, &maps.twin_b, column, depth, barrier);
      } else {
        copy_b(&maps.b, depth, barrier);
      }
    }
  });
}

}  // namespace hopper
}  // namespace steptrain::cuda
