// The bf16 product (cuda/gemm/product.h) on Hopper: a persistent grid of blocks of three warpgroups. One thread of the
// first loads tiles by TMA into a ring in shared memory; the other two multiply them by wgmma, 64 rows each of a tile,
// 64 of the depth at a time, with sums in registers. A tile is 128 × 128, 192 or 256; the choice follows from how well
// the tiles fill the multiprocessors, and changes no bit. Where the last tiles of 256 columns leave half of the blocks
// without one, each is cut into two of 128.
//   kColumns 256  48 KiB a stage, 4 stages
//   kColumns 192  40 KiB a stage, 4 stages
//   kColumns 128  32 KiB a stage, 6 stages
// The LoRA pair comes in rounds of the same ring, of as many steps as the rank has, and its products stay under
// way like all others: its scale is folded into its first factor (cuda/gemm/lora.cc). Only a mask stops to
// multiply the sums (kMasked). An element is summed over the depth in ascending steps of 16, the pair's first: its bits
// depend neither on its place in a tile nor on the size of the product. Beyond the factors TMA delivers zeros.
//
// A multiprocessor of an H100 does 2,048 multiply-adds a clock in bf16. A stage of 256 columns is 128·256·64 of them,
// 1,024 clocks, for 48 KiB from the L2 cache: 48 bytes a clock (128 columns: 512 clocks and 64 bytes a clock).
//
// Where the epilogue has a twin, the first half of a tile's columns are p's, the other half twin's: each half is a box of
// its own, and the LoRA pairs follow each other, each with zeros for the other half. Where u is not finite, 0 times u
// makes the other half of its row NaN; the output of that row is not finite either way.
//
// A thread has up to 128 sums. What is decided at each of them costs 128 copies of all its cases, and the loop over tiles
// then leaves the instruction cache, about 32 KiB: 14 µs a tile for a mask that is absent. So cases are decided outside of the
// loops over sums, and a mask is drawn as bits by warps that would idle.
#pragma once

#include <algorithm>

#include "cuda/gemm/linear_swiglu.cuh"
#include "cuda/gemm/sm90_tiles.h"
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

/// As tile_place, in 32 bits: a tile is placed while its block has nothing else to do.
__device__ inline TilePlace banded_place(int index, int down, int across, int band, int columns) {
  const int size = band * across, from = index / size * band, within = index % size;
  const int height = down - from < band ? down - from : band;
  return {int64_t{from + within % height} * kRows, int64_t{within / height} * columns};
}

/// The mask of a tile, a bit for each element, drawn by the warps of the first group that copy nothing, while
/// the tile before is multiplied. Two take turns.
template <int kColumns>
struct TileMask {
  static constexpr int kWords = kColumns / 32;  // of a row
  static constexpr int kThreads = kGroup - 32;  // that draw
  static constexpr int kBytes = kRows * kWords * 4;
  char* memory;
  RingPlace<2> place;
  __device__ Barrier* full(int of) const { return reinterpret_cast<Barrier*>(memory + 2 * kBytes) + of; }
  __device__ Barrier* empty(int of) const { return full(2 + of); }

  __device__ void init() {
    for (int i = 0; i < 2; i++) {
      mbarrier_init(full(i), kThreads);
      mbarrier_init(empty(i), kConsumers * kGroup);
    }
  }
  __device__ uint32_t* row(int r) const {
    return reinterpret_cast<uint32_t*>(memory + place.stage * kBytes) + r * kWords;
  }

  /// `thread` of kThreads.
  template <int kWidth>
  __device__ void draw(const Product& p, const TilePlace& tile, int thread) {
    const Dropout& d = p.dropout;
    const int first_row = static_cast<int>(tile.row), first_column = static_cast<int>(tile.column),
              rows = static_cast<int>(p.rows) - first_row;
    mbarrier_wait(empty(place.stage), place.parity ^ 1);
#pragma unroll 1
    for (int i = thread; i < kRows * (kWidth / 32); i += kThreads) {
      const int r = i % kRows, word = i / kRows;
      if (r >= rows) continue;
      const auto position = static_cast<uint32_t>(d.positions[first_row + r]),
                 id = static_cast<uint32_t>(d.row_ids[first_row + r]);
      const uint32_t group = static_cast<uint32_t>(first_column) / 4 + 8 * static_cast<uint32_t>(word);
      uint32_t bits = 0;
#pragma unroll 1
      for (uint32_t g = 0; g < 8; g++) {
        const Philox4 block = philox({{group + g, position, id, 0}}, d.key0, d.key1);
#pragma unroll
        for (int e = 0; e < 4; e++) bits |= (uniform(block.v[e]) >= d.rate ? 1u : 0u) << (4 * g + e);
      }
      row(r)[word] = bits;
    }
    mbarrier_arrive(full(place.stage));
    place.advance();
  }
  /// Multiplies a consumer's sums by `factor` or 0.
  template <typename Sums>
  __device__ void apply(Sums& sums, float factor) {
    mbarrier_wait(full(place.stage), place.parity);
#pragma unroll
    for (int i = 0; i < 2; i++) {
      const uint32_t* const bits = row(sums.first_row + 8 * i);
#pragma unroll
      for (int pair = 0; pair < Sums::kPairs; pair++) {
        const uint32_t kept = bits[pair / 4] >> (8 * (pair % 4) + sums.first_column);
        sums.at(i, pair, 0) *= kept & 1u ? factor : 0.0f;
        sums.at(i, pair, 1) *= kept & 2u ? factor : 0.0f;
      }
    }
    mbarrier_arrive(empty(place.stage));
    place.advance();
  }
};

/// Adds the bias to sums whose pairs of columns are inside p or outside it.
template <typename T, typename Sums>
__device__ void add_bias(const Product& p, Sums& sums) {
  const T* const bias = static_cast<const T*>(p.bias);
#pragma unroll
  for (int pair = 0; pair < Sums::kPairs; pair++) {
    const int64_t column = sums.column(pair);
    if (column >= p.columns) continue;
#pragma unroll
    for (int e = 0; e < 2; e++) {
      const float b = to_float(bias[column + e]);
      sums.at(0, pair, e) += b;
      sums.at(1, pair, e) += b;
    }
  }
}

/// What Store does before it rounds, for bf16 outputs that TMA stores.
template <typename Sums>
__device__ void finish_in_place(const Product& p, Sums& sums) {
  if (p.scale != 1) {
#pragma unroll
    for (float& v : sums.v) v *= p.scale;
  }
  if (p.bias) p.bias_dtype == DType::bf16 ? add_bias<bf16>(p, sums) : add_bias<float>(p, sums);
  if (!p.residual) return;
#pragma unroll
  for (int i = 0; i < 2; i++) {
    const int64_t row = sums.row(i);
    const auto* const from = static_cast<const bf16*>(p.residual) + row * p.columns;
#pragma unroll
    for (int pair = 0; pair < Sums::kPairs; pair++) {
      const int64_t column = sums.column(pair);
      if (row >= p.rows || column >= p.columns) continue;
      const uint32_t held = *reinterpret_cast<const uint32_t*>(from + column);
      sums.at(i, pair, 0) = stored<bf16>(sums.at(i, pair, 0)) + __uint_as_float(held << 16);
      sums.at(i, pair, 1) = stored<bf16>(sums.at(i, pair, 1)) + __uint_as_float(held & 0xffff0000u);
    }
  }
}

/// out += scale · sums, in f32 and whole pairs.
template <typename Sums>
__device__ void accumulate_pairs(const Product& p, const Sums& sums_of) {
  Sums& sums = const_cast<Sums&>(sums_of);
#pragma unroll
  for (int i = 0; i < 2; i++) {
    const int64_t row = sums.row(i);
    float* const to = static_cast<float*>(p.out) + row * p.columns;
#pragma unroll
    for (int pair = 0; pair < Sums::kPairs; pair++) {
      const int64_t column = sums.column(pair);
      if (row >= p.rows || column >= p.columns) continue;
      const float2 held = *reinterpret_cast<const float2*>(to + column);
      store_pair(to + column, p.scale * sums.at(i, pair, 0) + held.x, p.scale * sums.at(i, pair, 1) + held.y);
    }
  }
}

/// The boxes of a consumer's outputs, 64 rows by 64 columns, which take turns.
template <int kBoxes>
struct Outbox {
  char* buffer;
  int id;  // of the consumer's named barrier
  int turn = 0;

  /// Stores a box to (row, column) of `out`. pair(i, j) is two rounded neighbours, of the thread's row i and pair j of 8.
  template <typename Pair>
  __device__ void send(const CUtensorMap* out, int32_t row, int32_t column, Pair pair) {
    const int lane = static_cast<int>(threadIdx.x) % 32,
              warp_row = static_cast<int>(threadIdx.x) % 128 / 32 * 16;
    const bool sends = threadIdx.x % 128 == 0;
    char* const to = buffer + turn * kStoreBytes;
    turn = turn + 1 < kBoxes ? turn + 1 : 0;
    if (sends) tma_store_wait_read<kBoxes - 1>();
    warpgroup_barrier(id);
#pragma unroll
    for (int j = 0; j < 8; j += 2) {
      const uint32_t values[] = {pair(0, j), pair(1, j), pair(0, j + 1), pair(1, j + 1)};
      // The lane's row and chunk of 16 bytes; chunks are permuted as in TMA's 128-byte swizzle.
      const int r = warp_row + lane % 16, chunk = j + lane / 16;
      stmatrix(to + r * 128 + (chunk ^ r % 8) * 16, values);
    }
    fence_proxy_async();
    warpgroup_barrier(id);
    if (sends) {
      tma_store(out, row, column, to);
      tma_store_commit();
    }
  }
};

/// Sends gate, up and y = silu(gate)·up, as StoreSwiglu rounds them; gate and up where they are asked for.
template <typename Sums, typename Box>
__device__ void send_swiglu(const TwinTileMaps& maps, bool gate, bool up, Sums& sums, Box& outbox,
                            int32_t row, int32_t column) {
  constexpr int kHalf = Sums::kPairs / 2;
#pragma unroll
  for (int box = 0; box < kHalf / 8; box++) {
    const auto rounded = [&](int first) {
      return [&sums, first](int i, int j) {
        return round_to_bf16_pair(sums.at(i, first + j, 0), sums.at(i, first + j, 1));
      };
    };
    const int32_t at = column + 64 * box;
    if (gate) outbox.send(&maps.out, row, at, rounded(8 * box));
    if (up) outbox.send(&maps.twin_out, row, at, rounded(kHalf + 8 * box));
    outbox.send(&maps.y, row, at, [&](int i, int j) {
      float y[2];
#pragma unroll
      for (int e = 0; e < 2; e++)
        y[e] = swiglu_value(stored<bf16>(sums.at(i, 8 * box + j, e)),
                            stored<bf16>(sums.at(i, kHalf + 8 * box + j, e)));
      return round_to_bf16_pair(y[0], y[1]);
    });
  }
}

template <Layout kLayout, int kColumns, bool kMasked, typename Epilogue>
__global__ void __launch_bounds__(kThreads, 1)
    sm90_tile_kernel(const __grid_constant__ Product p, const __grid_constant__ TileMapsOf<Epilogue> maps,
                     const __grid_constant__ Epilogue epilogue) {
  using R = TileRing<kColumns, kMasked>;
  constexpr bool kKMajorA = a_k_major(kLayout), kKMajorB = b_k_major(kLayout);
  constexpr bool kHalves = kTwin<Epilogue>, kStreamK = kShares<Epilogue>;
  static_assert(!kHalves || (kKMajorB && !kMasked));
  static_assert(!kStreamK || (cuts(kColumns) && !kMasked && fits_in_shared(R::kShared)));
  constexpr int kTileColumns = tile_columns<Epilogue>(kColumns);
  constexpr int kBoxRows = box_rows(kTileColumns);
  constexpr bool kCuts = !kHalves && cuts(kColumns);
  char* const ring = aligned_shared();
  Barrier* const full = reinterpret_cast<Barrier*>(ring + R::kBarriers);
  Barrier* const empty = full + R::kStages;
  TileMask<kColumns> mask{ring + R::kMasks, {}};
  const bool masks = kMasked && p.rank > 0 && p.dropped == Dropped::lora;
  const auto a_tile = [&](int stage) { return ring + stage * R::kStageBytes; };
  const auto b_tile = [&](int stage) { return a_tile(stage) + R::kBytesA; };

  const int group = static_cast<int>(threadIdx.x) / kGroup, lane = static_cast<int>(threadIdx.x) % 32;
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < R::kStages; stage++) {
      mbarrier_init(&full[stage], 1);
      mbarrier_init(&empty[stage], kConsumerWarps);
    }
    if (masks) mask.init();
    fence_barrier_init();
    if (p.depth > 0) prefetch_map(&maps.a), prefetch_map(&maps.b);
  }
  __syncthreads();
  take_turn();
  uint32_t ticket = 0;
  if constexpr (kStreamK) ticket = epilogue.plan.draw();

  const int down = static_cast<int>((p.rows + kRows - 1) / kRows),
            across = static_cast<int>((p.columns + kTileColumns - 1) / kTileColumns), items = down * across;
  const auto rounds_of = [](int64_t depth) { return static_cast<int>((depth + kDepth - 1) / kDepth); };
  const Product& twin = twin_of(epilogue, p);
  const int own_lora_rounds = rounds_of(p.rank),
            lora_rounds = own_lora_rounds + (kHalves ? rounds_of(twin.rank) : 0);
  const int rounds = rounds_of(p.depth);
  RingPlace<R::kStages> place;

  /// body.operator()<columns>(tile, first, end) for each tile of the block, and the rounds of the frozen product that it
  /// takes: all but where blocks share tiles. Where the last tiles are no more than half of the blocks, each is cut into
  /// two: a block for each half.
  const auto each_tile = [&](auto body) {
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
    const int last = items % blocks;
    const bool cut = kCuts && 2 * last <= blocks;
    const auto place_of = [&](int index) {
      return banded_place(index, down, across, maps.band, kTileColumns);
    };
    for (int index = block; index < (cut ? items - last : items); index += blocks)
      body.template operator()<kColumns>(place_of(index), 0, rounds);
    if constexpr (kCuts) {
      if (!cut || block >= 2 * last) return;
      TilePlace tile = place_of(items - last + block / 2);
      tile.column += block % 2 * (kColumns / 2);
      if (tile.column < p.columns) body.template operator()<kColumns / 2>(tile, 0, rounds);
    }
  };

  if (group == 0) {
    shrink_registers<kMasked ? 56 : 40>();
    if (masks && threadIdx.x >= 32)
      each_tile([&]<int kWidth>(const TilePlace& tile, int, int) {
        mask.template draw<kWidth>(p, tile, static_cast<int>(threadIdx.x) - 32);
      });
    if (threadIdx.x != 0) return;
    each_tile([&]<int kWidth>(const TilePlace& tile, int first, int end) {
      const auto row = static_cast<int32_t>(tile.row), column = static_cast<int32_t>(tile.column);
      /// The stage's barrier once the stage is free; in the first round all are: the phase before the
      /// first counts as ended.
      const auto take_stage = [&] {
        mbarrier_wait(&empty[place.stage], place.parity ^ 1);
        mbarrier_expect_tx(&full[place.stage], R::kBytesA + kWidth * kDepth * 2);
        return &full[place.stage];
      };
      const auto copy_b = [&](const CUtensorMap* b, int32_t depth, Barrier* barrier) {
        char* const to = b_tile(place.stage);
        if constexpr (kKMajorB) {
#pragma unroll
          for (int of = 0; of < kWidth; of += kBoxRows)
            tma_load(to + of * kDepth * 2, b, column + of, depth, barrier);
        } else {
          copy_factor<false, kWidth>(to, b, column, depth, barrier);
        }
      };
      for (int round = 0; round < lora_rounds && first == 0; round++, place.advance()) {
        Barrier* const barrier = take_stage();
        if constexpr (kHalves) {
          // The other half is zeros, from a box below the matrix.
          const bool of_twin = round >= own_lora_rounds;
          const int32_t depth = (of_twin ? round - own_lora_rounds : round) * kDepth,
                        below = static_cast<int32_t>(p.columns);
          const CUtensorMap* const pair_b = of_twin ? &maps.twin_lora_b : &maps.lora_b;
          char* const b = b_tile(place.stage);
          tma_load(a_tile(place.stage), of_twin ? &maps.twin_lora_a : &maps.lora_a, row, depth, barrier);
          tma_load(b, pair_b, of_twin ? below : column, depth, barrier);
          tma_load(b + R::kBytesB / 2, pair_b, of_twin ? column : below, depth, barrier);
        } else {
          copy_factor<kKMajorA, kRows>(a_tile(place.stage), &maps.lora_a, row, round * kDepth, barrier);
          copy_b(&maps.lora_b, round * kDepth, barrier);
        }
      }
      for (int round = first; round < end; round++, place.advance()) {
        Barrier* const barrier = take_stage();
        const int32_t depth = round * kDepth;
        copy_factor<kKMajorA, kRows>(a_tile(place.stage), &maps.a, row, depth, barrier);
        if constexpr (kHalves) {
          char* const b = b_tile(place.stage);
          tma_load(b, &maps.b, column, depth, barrier);
          tma_load(b + R::kBytesB / 2, &maps.twin_b, column, depth, barrier);
        } else {
          copy_b(&maps.b, depth, barrier);
        }
      }
    });
    return;
  }

  grow_registers<kMasked ? 224 : 232>();
  const int warp_row = (group - 1) * 64 + own_row();
  const auto a_factor = [&] {
    return matrix_descriptor(a_tile(place.stage) + (group - 1) * kBoxBytes, kKMajorA ? 16 : kBoxBytes);
  };
  const auto b_factor = [&] { return matrix_descriptor(b_tile(place.stage), kKMajorB ? 16 : kBoxBytes); };
  // In units of 16 bytes, as the lowest field of a descriptor, the address, is.
  constexpr int kStepA = kStep * (kKMajorA ? 2 : 128) / 16, kStepB = kStep * (kKMajorB ? 2 : 128) / 16;
  const auto release = [&](int stage) {
    if (lane == 0) mbarrier_arrive(&empty[stage]);
  };
  Outbox<R::kBoxes> outbox{ring + R::kBytes + (group - 1) * R::kBoxes * kStoreBytes, group};

  each_tile([&]<int kWidth>(const TilePlace& tile, int first, int end) {
    using Sums = TensorSums<2, kWidth / 8, 1>;
    Sums sums{};
    sums.tile = tile;
    sums.first_row = warp_row;
    sums.first_column = fragment_column(lane, 0);
    int before = -1;  // the stage whose products may be incomplete
    if constexpr (kStreamK) epilogue.plan.take_over(sums.v, ticket, group, first > 0);

    for (int round = 0; round < lora_rounds && first == 0; round++, place.advance()) {
      mbarrier_wait(&full[place.stage], place.parity);
      const bool of_twin = kHalves && round >= own_lora_rounds;
      const int left =
          static_cast<int>((of_twin ? twin : p).rank) - (of_twin ? round - own_lora_rounds : round) * kDepth;
      const uint64_t a = a_factor(), b = b_factor();
      wgmma_fence();
#pragma unroll 1
      for (int k = 0; k < left && k < kDepth; k += kStep)
        wgmma<!kKMajorA, !kKMajorB>(sums.v, a + k / kStep * kStepA, b + k / kStep * kStepB);
      wgmma_commit();
      wgmma_wait<1>();
      if (before >= 0) release(before);
      before = place.stage;
    }
    if constexpr (kMasked) {
      if (lora_rounds > 0) {
        wgmma_wait<0>();
        pin(sums.v);
        if (masks) {
          mask.apply(sums, p.lora_scale * p.dropout.kept);
        } else {
#pragma unroll
          for (float& v : sums.v) v *= p.lora_scale;
        }
        pin(sums.v);
      }
    }
    for (int round = first; round < end; round++, place.advance()) {
      mbarrier_wait(&full[place.stage], place.parity);
      const uint64_t a = a_factor(), b = b_factor();
      wgmma_fence();
#pragma unroll
      for (int k = 0; k < kDepth / kStep; k++)
        wgmma<!kKMajorA, !kKMajorB>(sums.v, a + k * kStepA, b + k * kStepB);
      wgmma_commit();
      wgmma_wait<1>();
      if (before >= 0) release(before);
      before = place.stage;
    }
    wgmma_wait<0>();
    pin(sums.v);
    if (before >= 0) release(before);
    if constexpr (kStreamK)
      if (end < rounds) return epilogue.plan.leave(sums.v, ticket, group);

    const auto row = static_cast<int32_t>(tile.row) + (group - 1) * 64,
               column = static_cast<int32_t>(tile.column);
    if (maps.sends) {
      if constexpr (kHalves) {
        send_swiglu(maps, p.out != nullptr, twin.out != nullptr, sums, outbox, row, column);
      } else {
        finish_in_place(p, sums);
#pragma unroll
        for (int box = 0; box < kWidth / 64; box++)
          outbox.send(&maps.out, row, column + 64 * box, [&](int i, int j) {
            return round_to_bf16_pair(sums.at(i, 8 * box + j, 0), sums.at(i, 8 * box + j, 1));
          });
      }
      return;
    }
    typename Epilogue::template Item<Sums> item(epilogue, p);
    if constexpr (!kHalves) {
      if (p.accumulate && p.out_dtype == DType::f32 && item.paired && !p.bias)
        return accumulate_pairs(p, sums);
    }
    item.add(sums, true);
  });
  if (maps.sends && threadIdx.x % kGroup == 0) tma_store_wait_read<0>();
}

/// Whether TMA can store a bf16 matrix of p's size there.
inline bool sendable(const Product& p, const void* out) {
  return p.columns % kEight == 0 && reinterpret_cast<uintptr_t>(out) % 16 == 0;
}

/// Rows of tiles that are walked down before the next column of tiles: 132 tiles of 128 × 256 then read 2,048 rows
/// of a and 2,112 of b, the least.
constexpr int kBand = 16;

template <Layout kLayout, int kColumns, bool kMasked, typename Epilogue>
void launch_tiles(Stream& stream, const Product& p, const Epilogue& epilogue, int band = kBand) {
  constexpr int kTileColumns = tile_columns<Epilogue>(kColumns);
  // A box has all rows of a K-major tile, or 64 of the depth of an MN-major one.
  const auto describe = [&](const Factor& f, bool k_major, int outer) {
    return make_tensor_map(stream, f.data, f.rows, f.columns, k_major ? outer : kDepth);
  };
  const auto describe_out = [&](void* out) { return make_tensor_map(stream, out, p.rows, p.columns, 64); };
  TileMapsOf<Epilogue> maps{};
  if (p.depth > 0) {
    maps.a = describe(p.a, a_k_major(kLayout), kRows);
    maps.b = describe(p.b, b_k_major(kLayout), box_rows(kTileColumns));
  }
  if (p.rank > 0) {
    maps.lora_a = describe(p.lora_a, a_k_major(kLayout), kRows);
    maps.lora_b = describe(p.lora_b, b_k_major(kLayout), box_rows(kTileColumns));
  }
  if constexpr (kTwin<Epilogue>) {
    const Product& twin = epilogue.twin;
    if (p.depth > 0) maps.twin_b = describe(twin.b, true, kTileColumns);
    if (twin.rank > 0) {
      maps.twin_lora_a = describe(twin.lora_a, true, kRows);
      maps.twin_lora_b = describe(twin.lora_b, true, kTileColumns);
    }
    maps.sends = sendable(p, p.out) && sendable(p, twin.out) && sendable(p, epilogue.y);
    if (maps.sends) {
      maps.y = describe_out(epilogue.y);
      if (p.out) maps.out = describe_out(p.out);
      if (twin.out) maps.twin_out = describe_out(twin.out);
    }
  } else {
    maps.sends = p.out && p.out_dtype == DType::bf16 && !p.accumulate && sendable(p, p.out) &&
                 reinterpret_cast<uintptr_t>(p.residual) % 4 == 0;
    if (maps.sends) maps.out = describe_out(p.out);
  }
  maps.band = band;
  const int64_t items = tile_count(p, kRows, kTileColumns);
  stream.launch_early({}, sm90_tile_kernel<kLayout, kColumns, kMasked, Epilogue>,
                      items < stream.hardware.multiprocessors ? items : stream.hardware.multiprocessors,
                      kThreads, TileRing<kColumns, kMasked>::kShared, p, maps, epilogue);
}

/// Clocks of a round of a tile of that many columns and of what is not hidden behind its rounds, as an H100 takes them for
/// depths of 1,536 to 8,960.
struct TileClocks {
  int columns;
  int64_t round, rest;
  constexpr int64_t of(int64_t rounds) const { return rounds * round + rest; }
};
constexpr TileClocks kWide{256, 1024, 2500}, kMedium{192, 770, 2000}, kNarrow{128, 560, 2100};

inline int64_t rounds_of(const Product& p) {
  return (p.depth + kDepth - 1) / kDepth;
}

/// The columns of the tiles that take least: what one takes, times how many the busiest multiprocessor has; the last one
/// may be a half.
struct Fit {
  int columns;
  int64_t clocks;
};
inline Fit fitting(const Stream& stream, const Product& p) {
  const int64_t rounds = rounds_of(p);
  Fit best{};
  for (const TileClocks& c : {kWide, kMedium, kNarrow}) {
    const int64_t tiles = tile_count(p, kRows, c.columns),
                  blocks = std::min<int64_t>(tiles, stream.hardware.multiprocessors), last = tiles % blocks;
    int64_t clocks = tiles / blocks * c.of(rounds);
    if (last > 0) clocks += cuts(c.columns) && 2 * last <= blocks ? kNarrow.of(rounds) : c.of(rounds);
    if (best.columns == 0 || clocks < best.clocks) best = {c.columns, clocks};
  }
  return best;
}

template <Layout kLayout, bool kMasked>
void launch_fitting(Stream& stream, const Product& p) {
  const Fit fit = fitting(stream, p);
  if constexpr (!kMasked)
    if (stream.hardware.choice.takes(Successor::stream_k) &&
        multiply_stream_k(stream, kLayout, p, fit.clocks))
      return;
  if (fit.columns == 256) return launch_tiles<kLayout, 256, kMasked>(stream, p, Store{});
  if (fit.columns == 192) return launch_tiles<kLayout, 192, kMasked>(stream, p, Store{});
  launch_tiles<kLayout, 128, kMasked>(stream, p, Store{});
}

}  // namespace hopper
}  // namespace steptrain::cuda
