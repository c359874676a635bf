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

#include "cuda/gemm/sm90_tile_mask.cuh"
#include "cuda/gemm/sm90_tile_ring.cuh"
#include "cuda/gemm/sm90_tile_stores.cuh"
#include "cuda/gemm/sm90_tiles.h"

namespace steptrain::cuda {
namespace hopper {

/// Multiplies 64 rows of each tile of the block, round by round, and stores the sums. By a consumer, which is `group` 1 or 2.
template <Layout kLayout, bool kMasked, typename Epilogue, typename Maps, typename Ring, typename Walk,
          typename Mask>
__device__ void multiply_rounds(const Product& p, const Maps& maps, const Epilogue& epilogue,
                                const Ring& ring, const Walk& walk, Mask& mask, bool masks, int group,
                                int lane) {
  constexpr bool kKMajorA = a_k_major(kLayout), kKMajorB = b_k_major(kLayout);
  constexpr bool kHalves = Walk::kHalves, kStreamK = Walk::kStreamK;
  // In units of 16 bytes, as the lowest field of a descriptor, the address, is.
  constexpr int kStepA = kStep * (kKMajorA ? 2 : 128) / 16, kStepB = kStep * (kKMajorB ? 2 : 128) / 16;
  const int warp_row = (group - 1) * kGroupRows + own_row();
  RingPlace<Ring::kStages> place;
  const auto a_factor = [&] {
    return matrix_descriptor(ring.a_tile(place.stage) + (group - 1) * kBoxBytes, kKMajorA ? 16 : kBoxBytes);
  };
  const auto b_factor = [&] {
    return matrix_descriptor(ring.b_tile(place.stage), kKMajorB ? 16 : kBoxBytes);
  };
  const auto release = [&](int stage) {
    if (lane == 0) mbarrier_arrive(ring.empty(stage));
  };
  Outbox<Ring::kBoxes> outbox{ring.boxes(group - 1), group};

  walk.each([&]<int kWidth>(const TilePlace& tile, int first, int end) {
    using Sums = TensorSums<2, kWidth / 8, 1>;
    Sums sums{};
    sums.tile = tile;
    sums.first_row = warp_row;
    sums.first_column = fragment_column(lane, 0);
    int before = -1;  // the stage whose products may be incomplete
    if constexpr (kStreamK) epilogue.plan.take_over(sums.v, walk.ticket, group, first > 0);

    for (int round = 0; round < walk.lora_rounds && first == 0; round++, place.advance()) {
      mbarrier_wait(ring.full(place.stage), place.parity);
      const bool of_twin = kHalves && round >= walk.own_lora_rounds;
      const int left = static_cast<int>((of_twin ? twin_of(epilogue, p) : p).rank) -
                       (of_twin ? round - walk.own_lora_rounds : round) * kDepth;
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
      if (walk.lora_rounds > 0) {
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
      mbarrier_wait(ring.full(place.stage), place.parity);
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
      if (end < walk.rounds) return epilogue.plan.leave(sums.v, walk.ticket, group);
    store_sums(p, maps, epilogue, sums, outbox);
  });
  if (maps.sends && threadIdx.x % kGroup == 0) tma_store_wait_read<0>();
}

template <Layout kLayout, int kColumns, bool kMasked, typename Epilogue>
__global__ void __launch_bounds__(kThreads, 1)
    sm90_tile_kernel(const __grid_constant__ Product p, const __grid_constant__ TileMapsOf<Epilogue> maps,
                     const __grid_constant__ Epilogue epilogue) {
  using Ring = TileRing<kColumns, kMasked>;
  static_assert(!kTwin<Epilogue> || (b_k_major(kLayout) && !kMasked));
  static_assert(!kShares<Epilogue> || (cuts(kColumns) && !kMasked && fits_in_shared(Ring::kShared)));
  const Ring ring{aligned_shared()};
  TileMask<kColumns> mask{ring.base + Ring::kMasks, {}};
  const bool masks = kMasked && p.rank > 0 && p.dropped == Dropped::lora;
  const int group = static_cast<int>(threadIdx.x) / kGroup, lane = static_cast<int>(threadIdx.x) % 32;
  if (threadIdx.x == 0) {
    ring.init();
    if (masks) mask.init();
    fence_barrier_init();
    if (p.depth > 0) prefetch_map(&maps.a), prefetch_map(&maps.b);
  }
  __syncthreads();
  take_turn();
  const TileWalk<kColumns, Epilogue> walk(p, epilogue, maps);

  if (group == 0) {
    shrink_registers<kMasked ? 56 : 40>();
    if (masks && threadIdx.x >= 32)
      walk.each([&]<int kWidth>(const TilePlace& tile, int, int) {
        mask.template draw<kWidth>(p, tile, static_cast<int>(threadIdx.x) - 32);
      });
    if (threadIdx.x == 0) load_tiles<kLayout>(p, maps, ring, walk);
    return;
  }
  grow_registers<kMasked ? 224 : 232>();
  multiply_rounds<kLayout, kMasked>(p, maps, epilogue, ring, walk, mask, masks, group, lane);
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
