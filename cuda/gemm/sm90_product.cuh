// The mainloop of the bf16 product (cuda/gemm/product.h) on Hopper: a persistent grid of blocks of three
// warpgroups. One thread of the first copies tiles by TMA into a ring in shared memory; the other two
// multiply them by wgmma, 64 rows each of a tile of 128 × kColumns, 64 of the depth at a time, sums in
// registers. The next tile's copies run during a tile's epilogue.
//   kColumns 256  48 KiB a stage, 4 stages; where that makes tiles for every multiprocessor
//   kColumns 128  32 KiB a stage, 6 stages
// The extra depth comes first, like any other, with tensor maps of its own; then scale and mask apply to the
// sums and the frozen product joins them. An element is summed over the depth in ascending steps of 16: its
// bits depend neither on its place in a tile nor on the size of the product. Beyond the factors TMA delivers
// zeros. Where the epilogue has a twin, the first half of a tile's columns are p's, the other half twin's:
// each half is a box of its own, and their extra depths follow each other, each over zeros for the other
// half. Since 0 times what is not finite is NaN, a u that is not finite costs its row both halves; that row's
// output is not finite either way.
#pragma once

#include <type_traits>

#include "cuda/gemm/parts.cuh"
#include "cuda/gemm/sm90_store.cuh"
#include "cuda/runtime/tensor_map.h"
#include "cuda/sm90_block.cuh"
#include "cuda/sm90_instructions.cuh"

namespace steptrain::cuda {
namespace hopper {

constexpr int kRows = 128;
constexpr int kDepth = kBoxColumns;         // of a stage
constexpr int kBoxBytes = 64 * kDepth * 2;  // of 64 rows along the depth, or 64 columns across it

template <int kColumns>
struct Ring {
  static constexpr int kStages = kColumns == 256 ? 4 : 6;
  static constexpr int kBytesA = kRows * kDepth * 2, kBytesB = kColumns * kDepth * 2;
  static constexpr int kStageBytes = kBytesA + kBytesB;
  static constexpr int kBytes = kStages * kStageBytes;
  static constexpr int kShared = kBytes + kConsumers * kGroupStoreBytes + 1024;  // and what aligns them
};

/// The factors of the frozen product and of the extra pair, and the output where values leave by TMA.
struct Maps {
  CUtensorMap a, b, extra_a, extra_b, out;
  bool sends;
};
/// And of the twin, whose a is p's.
struct TwinMaps : Maps {
  CUtensorMap twin_b, twin_extra_a, twin_extra_b;
};
template <typename Epilogue>
using MapsOf = std::conditional_t<kTwin<Epilogue>, TwinMaps, Maps>;

/// Copies one factor's tile: rows along the depth in one box, else a box for each 64 columns.
template <bool kAlongDepth, int kOuter>
__device__ void copy_factor(char* to, const CUtensorMap* factor, int32_t outer, int32_t depth,
                            Barrier* barrier) {
  if constexpr (kAlongDepth) {
    copy_box(to, factor, outer, depth, barrier);
  } else {
#pragma unroll
    for (int i = 0; i < kOuter / 64; i++)
      copy_box(to + i * kBoxBytes, factor, depth, outer + 64 * i, barrier);
  }
}

template <Layout kLayout, int kColumns, typename Epilogue>
__global__ void __launch_bounds__(kThreads, 1)
    sm90_gemm_kernel(const __grid_constant__ Product p, const __grid_constant__ MapsOf<Epilogue> maps,
                     const __grid_constant__ Epilogue epilogue) {
  using R = Ring<kColumns>;
  using Sums = TensorSums<2, kColumns / 8, 1>;
  constexpr bool kAlongA = a_along_depth(kLayout), kAlongB = b_along_depth(kLayout);
  constexpr bool kApplies = Applies<typename Epilogue::template Item<Sums>, Sums>;
  constexpr bool kHalves = kTwin<Epilogue>;
  static_assert(!kHalves || kAlongB);
  constexpr int kTileColumns = tile_columns<Epilogue>(kColumns);
  constexpr int64_t kItem = item_columns<Epilogue>(kColumns);
  __shared__ Barrier full[R::kStages], empty[R::kStages];
  char* const ring = aligned_shared();
  const auto a_tile = [&](int stage) { return ring + stage * R::kStageBytes; };
  const auto b_tile = [&](int stage) { return a_tile(stage) + R::kBytesA; };

  const int group = static_cast<int>(threadIdx.x) / kGroup, lane = static_cast<int>(threadIdx.x) % 32;
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < R::kStages; stage++) {
      barrier_init(&full[stage], 1);
      barrier_init(&empty[stage], kConsumerWarps);
    }
    publish_barriers();
  }
  __syncthreads();

  const int64_t items = tile_count(p, kRows, kItem);
  const Product& twin = twin_of(epilogue, p);
  const auto extra_rounds = [](const Product& of) {
    return Epilogue::kExtra ? static_cast<int>((of.extra_depth + kDepth - 1) / kDepth) : 0;
  };
  const int own_extras = extra_rounds(p), extras = own_extras + (kHalves ? extra_rounds(twin) : 0);
  const int rounds = extras + static_cast<int>((p.depth + kDepth - 1) / kDepth);
  RingPlace<R::kStages> place;
  /// body(tile, last) for the tiles of an item.
  const auto each_tile = [&](int64_t index, auto body) {
    TilePlace tile = tile_place(p, index, kRows, kItem);
    if constexpr (kItem == kTileColumns) {
      body(tile, true);
    } else {
      const int64_t end = tile.column + kItem < p.columns ? tile.column + kItem : p.columns;
      for (; tile.column < end; tile.column += kTileColumns) body(tile, tile.column + kTileColumns >= end);
    }
  };

  if (group == 0) {
    shrink_registers<40>();
    if (threadIdx.x != 0) return;
    for (int64_t index = blockIdx.x; index < items; index += gridDim.x) {
      each_tile(index, [&](const TilePlace& tile, bool) {
        for (int round = 0; round < rounds; round++, place.advance()) {
          // The first time round stages are empty: the phase before the first counts as ended.
          barrier_wait(&empty[place.stage], place.parity ^ 1);
          Barrier* const barrier = &full[place.stage];
          const bool extra = round < extras, of_twin = kHalves && extra && round >= own_extras;
          barrier_expect(barrier, R::kStageBytes);
          const int32_t depth = (round - (of_twin ? own_extras : extra ? 0 : extras)) * kDepth;
          const auto row = static_cast<int32_t>(tile.row), column = static_cast<int32_t>(tile.column);
          const CUtensorMap* const own_b = extra ? &maps.extra_b : &maps.b;
          if constexpr (kHalves) {
            const CUtensorMap* const own_a = extra ? &maps.extra_a : &maps.a;
            copy_factor<true, kRows>(a_tile(place.stage), of_twin ? &maps.twin_extra_a : own_a, row, depth,
                                     barrier);
            // One's extra depth is zeros for the other: a box below the matrix.
            const auto below = static_cast<int32_t>(p.columns);
            char* const b = b_tile(place.stage);
            copy_factor<true, kColumns / 2>(b, of_twin ? &maps.twin_extra_b : own_b, of_twin ? below : column,
                                            depth, barrier);
            const CUtensorMap* const other_b = of_twin ? &maps.twin_extra_b : extra ? own_b : &maps.twin_b;
            copy_factor<true, kColumns / 2>(b + R::kBytesB / 2, other_b, extra && !of_twin ? below : column,
                                            depth, barrier);
          } else {
            copy_factor<kAlongA, kRows>(a_tile(place.stage), extra ? &maps.extra_a : &maps.a, row, depth,
                                        barrier);
            copy_factor<kAlongB, kColumns>(b_tile(place.stage), own_b, column, depth, barrier);
          }
        }
      });
    }
    return;
  }

  grow_registers<232>();
  const int warp_row = (group - 1) * 64 + static_cast<int>(threadIdx.x) % kGroup / 32 * 16 + lane / 4;
  const auto a_factor = [&] {
    return box_descriptor(a_tile(place.stage) + (group - 1) * kBoxBytes, kAlongA ? 16 : kBoxBytes);
  };
  const auto b_factor = [&] { return box_descriptor(b_tile(place.stage), kAlongB ? 16 : kBoxBytes); };
  // In units of 16 bytes; the address is the descriptor's lowest field.
  constexpr int kStepA = kStep * (kAlongA ? 2 : 128) / 16, kStepB = kStep * (kAlongB ? 2 : 128) / 16;
  const auto release = [&](int stage) {
    if (lane == 0) barrier_arrive(&empty[stage]);
  };

  for (int64_t index = blockIdx.x; index < items; index += gridDim.x) {
    typename Epilogue::template Item<Sums> item(epilogue, p);
    each_tile(index, [&](const TilePlace& tile, bool last) {
      Sums sums{};
      sums.tile = tile;
      sums.first_row = warp_row;
      sums.first_column = lane % 4 * 2;

      for (int round = 0; round < extras; round++, place.advance()) {
        barrier_wait(&full[place.stage], place.parity);
        const bool of_twin = kHalves && round >= own_extras;
        const int64_t left =
            (of_twin ? twin : p).extra_depth - int64_t{of_twin ? round - own_extras : round} * kDepth;
        const int steps = static_cast<int>((left + kStep - 1) / kStep);
        open_group();
#pragma unroll 1
        for (int k = 0; k < steps && k < kDepth / kStep; k++)
          multiply_group<!kAlongA, !kAlongB>(sums.v, a_factor() + k * kStepA, b_factor() + k * kStepB);
        close_group();
        wait_for_groups<0>();
        release(place.stage);
      }
      if (extras > 0) {
        pin(sums.v);
        if constexpr (kHalves) {
          scale_extra(p, twin, sums);
        } else {
          scale_extra(p, sums);
        }
        pin(sums.v);
      }

      int before = -1;  // the stage whose products may be under way
      for (int round = extras; round < rounds; round++, place.advance()) {
        barrier_wait(&full[place.stage], place.parity);
        const uint64_t a = a_factor(), b = b_factor();
        open_group();
#pragma unroll
        for (int k = 0; k < kDepth / kStep; k++)
          multiply_group<!kAlongA, !kAlongB>(sums.v, a + k * kStepA, b + k * kStepB);
        close_group();
        wait_for_groups<1>();
        if (before >= 0) release(before);
        before = place.stage;
      }
      wait_for_groups<0>();
      pin(sums.v);
      if (before >= 0) release(before);
      if constexpr (kApplies) {
        if (maps.sends) {
          item.apply(sums);
          send_rows(ring + R::kBytes + (group - 1) * kGroupStoreBytes, &maps.out, sums,
                    static_cast<int32_t>(tile.row) + (group - 1) * 64, static_cast<int32_t>(tile.column),
                    group);
          return;
        }
      }
      item.add(sums, last);
    });
  }
  if constexpr (kApplies)
    if (maps.sends && threadIdx.x % kGroup == 0) wait_for_reads<0>();
}

template <Layout kLayout, int kColumns, typename Epilogue>
void launch(Stream& stream, const Product& p, const Epilogue& epilogue) {
  // Boxes of rows along the depth, else of 64 of the depth.
  const auto describe = [&](const Factor& f, bool along_depth, int outer) {
    return describe_matrix(stream, f.data, f.rows, f.columns, along_depth ? outer : kDepth);
  };
  MapsOf<Epilogue> maps{};
  if (p.depth > 0) {
    maps.a = describe(p.a, a_along_depth(kLayout), kRows);
    maps.b = describe(p.b, b_along_depth(kLayout), tile_columns<Epilogue>(kColumns));
  }
  if (p.extra_depth > 0) {
    maps.extra_a = describe(p.extra_a, a_along_depth(kLayout), kRows);
    maps.extra_b = describe(p.extra_b, b_along_depth(kLayout), tile_columns<Epilogue>(kColumns));
  }
  if constexpr (kTwin<Epilogue>) {
    const Product& twin = epilogue.twin;
    if (p.depth > 0) maps.twin_b = describe(twin.b, true, kColumns / 2);
    if (twin.extra_depth > 0) {
      maps.twin_extra_a = describe(twin.extra_a, true, kRows);
      maps.twin_extra_b = describe(twin.extra_b, true, kColumns / 2);
    }
  }
  maps.sends = p.out_dtype == DType::bf16 && !p.accumulate && p.columns % kEight == 0 && p.out &&
               reinterpret_cast<uintptr_t>(p.out) % 16 == 0;
  if (maps.sends) maps.out = describe_matrix(stream, p.out, p.rows, p.columns, 64);
  const int64_t items = tile_count(p, kRows, item_columns<Epilogue>(kColumns));
  stream.launch(sm90_gemm_kernel<kLayout, kColumns, Epilogue>,
                items < stream.hardware.multiprocessors ? items : stream.hardware.multiprocessors, kThreads,
                Ring<kColumns>::kShared, p, maps, epilogue);
}

/// The wider tile where that makes one for every multiprocessor.
template <Layout kLayout, typename Epilogue>
void launch(Stream& stream, const Product& p, const Epilogue& epilogue) {
  if (tile_count(p, kRows, 256) >= stream.hardware.multiprocessors) {
    launch<kLayout, 256>(stream, p, epilogue);
  } else {
    launch<kLayout, 128>(stream, p, epilogue);
  }
}

}  // namespace hopper
}  // namespace steptrain::cuda
