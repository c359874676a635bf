// The mainloop of the bf16 product (cuda/gemm/product.h) on Hopper: a persistent grid of blocks of three
// warpgroups. One thread of the first loads tiles by TMA into a ring in shared memory; the other two multiply
// them by wgmma, 64 rows each of a tile of 128 × kColumns, 64 of the depth at a time, with sums in registers.
// The next tile is loaded during the epilogue of this one.
//   kColumns 256  48 KiB a stage, 4 stages; where there are such tiles for every multiprocessor
//   kColumns 128  32 KiB a stage, 6 stages
// A multiprocessor of an H100 does 2,048 multiply-adds a clock in bf16. A stage is 128·256·64 of them, 1,024
// clocks, for 48 KiB from the L2 cache: 48 bytes a clock (kColumns 128: 512 clocks and 64 bytes a clock). The
// LoRA pair comes first, with tensor maps of its own; then its scale and mask apply to the sums and the
// frozen product is added. An element is summed over the depth in ascending steps of 16: its bits depend
// neither on its place in a tile nor on the size of the product. Beyond the factors TMA delivers zeros. Where
// the epilogue has a twin, the first half of a tile's columns are p's, the other half twin's: each half is a
// box of its own, and the LoRA pairs follow each other, each with zeros for the other half. Where u is not
// finite, 0 times u makes the other half of its row NaN; the output of that row is not finite either way.
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
constexpr int kBoxBytes = 64 * kDepth * 2;  // of 64 K-major rows, or 64 MN-major columns

template <int kColumns>
struct Ring {
  static constexpr int kStages = kColumns == 256 ? 4 : 6;
  static constexpr int kBytesA = kRows * kDepth * 2, kBytesB = kColumns * kDepth * 2;
  static constexpr int kStageBytes = kBytesA + kBytesB;
  static constexpr int kBytes = kStages * kStageBytes;
  static constexpr int kShared = kBytes + kConsumers * kGroupStoreBytes + 1024;  // and what aligns them
};

/// The factors of the frozen product and of the LoRA pair, and the output where it is stored by TMA.
struct Maps {
  CUtensorMap a, b, lora_a, lora_b, out;
  bool sends;
};
/// The same with the twin, whose a is p's.
struct TwinMaps : Maps {
  CUtensorMap twin_b, twin_lora_a, twin_lora_b;
};
template <typename Epilogue>
using MapsOf = std::conditional_t<kTwin<Epilogue>, TwinMaps, Maps>;

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

template <Layout kLayout, int kColumns, typename Epilogue>
__global__ void __launch_bounds__(kThreads, 1)
    sm90_gemm_kernel(const __grid_constant__ Product p, const __grid_constant__ MapsOf<Epilogue> maps,
                     const __grid_constant__ Epilogue epilogue) {
  using R = Ring<kColumns>;
  using Sums = TensorSums<2, kColumns / 8, 1>;
  constexpr bool kKMajorA = a_k_major(kLayout), kKMajorB = b_k_major(kLayout);
  constexpr bool kApplies = Applies<typename Epilogue::template Item<Sums>, Sums>;
  constexpr bool kHalves = kTwin<Epilogue>;
  static_assert(!kHalves || kKMajorB);
  constexpr int kTileColumns = tile_columns<Epilogue>(kColumns);
  constexpr int64_t kItem = item_columns<Epilogue>(kColumns);
  __shared__ Barrier full[R::kStages], empty[R::kStages];
  char* const ring = aligned_shared();
  const auto a_tile = [&](int stage) { return ring + stage * R::kStageBytes; };
  const auto b_tile = [&](int stage) { return a_tile(stage) + R::kBytesA; };

  const int group = static_cast<int>(threadIdx.x) / kGroup, lane = static_cast<int>(threadIdx.x) % 32;
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < R::kStages; stage++) {
      mbarrier_init(&full[stage], 1);
      mbarrier_init(&empty[stage], kConsumerWarps);
    }
    fence_barrier_init();
  }
  __syncthreads();

  const int64_t items = tile_count(p, kRows, kItem);
  const Product& twin = twin_of(epilogue, p);
  const auto lora_rounds_of = [](const Product& of) {
    return Epilogue::kLora ? static_cast<int>((of.rank + kDepth - 1) / kDepth) : 0;
  };
  const int own_lora_rounds = lora_rounds_of(p),
            lora_rounds = own_lora_rounds + (kHalves ? lora_rounds_of(twin) : 0);
  const int rounds = lora_rounds + static_cast<int>((p.depth + kDepth - 1) / kDepth);
  RingPlace<R::kStages> place;
  /// body(tile, last) for each tile of an item.
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
          // In the first round all stages are empty: the phase before the first counts as ended.
          mbarrier_wait(&empty[place.stage], place.parity ^ 1);
          Barrier* const barrier = &full[place.stage];
          const bool lora = round < lora_rounds, of_twin = kHalves && lora && round >= own_lora_rounds;
          mbarrier_expect_tx(barrier, R::kStageBytes);
          const int32_t depth = (round - (of_twin ? own_lora_rounds : lora ? 0 : lora_rounds)) * kDepth;
          const auto row = static_cast<int32_t>(tile.row), column = static_cast<int32_t>(tile.column);
          const CUtensorMap* const own_b = lora ? &maps.lora_b : &maps.b;
          if constexpr (kHalves) {
            const CUtensorMap* const own_a = lora ? &maps.lora_a : &maps.a;
            copy_factor<true, kRows>(a_tile(place.stage), of_twin ? &maps.twin_lora_a : own_a, row, depth,
                                     barrier);
            // For the other half the LoRA pair is zeros, from a box below the matrix.
            const auto below = static_cast<int32_t>(p.columns);
            char* const b = b_tile(place.stage);
            copy_factor<true, kColumns / 2>(b, of_twin ? &maps.twin_lora_b : own_b, of_twin ? below : column,
                                            depth, barrier);
            const CUtensorMap* const other_b = of_twin ? &maps.twin_lora_b : lora ? own_b : &maps.twin_b;
            copy_factor<true, kColumns / 2>(b + R::kBytesB / 2, other_b, lora && !of_twin ? below : column,
                                            depth, barrier);
          } else {
            copy_factor<kKMajorA, kRows>(a_tile(place.stage), lora ? &maps.lora_a : &maps.a, row, depth,
                                         barrier);
            copy_factor<kKMajorB, kColumns>(b_tile(place.stage), own_b, column, depth, barrier);
          }
        }
      });
    }
    return;
  }

  grow_registers<232>();
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

  for (int64_t index = blockIdx.x; index < items; index += gridDim.x) {
    typename Epilogue::template Item<Sums> item(epilogue, p);
    each_tile(index, [&](const TilePlace& tile, bool last) {
      Sums sums{};
      sums.tile = tile;
      sums.first_row = warp_row;
      sums.first_column = fragment_column(lane, 0);

      for (int round = 0; round < lora_rounds; round++, place.advance()) {
        mbarrier_wait(&full[place.stage], place.parity);
        const bool of_twin = kHalves && round >= own_lora_rounds;
        const int64_t left =
            (of_twin ? twin : p).rank - int64_t{of_twin ? round - own_lora_rounds : round} * kDepth;
        const int steps = static_cast<int>((left + kStep - 1) / kStep);
        wgmma_fence();
#pragma unroll 1
        for (int k = 0; k < steps && k < kDepth / kStep; k++)
          wgmma<!kKMajorA, !kKMajorB>(sums.v, a_factor() + k * kStepA, b_factor() + k * kStepB);
        wgmma_commit();
        wgmma_wait<0>();
        release(place.stage);
      }
      if (lora_rounds > 0) {
        pin(sums.v);
        if constexpr (kHalves) {
          scale_lora(p, twin, sums);
        } else {
          scale_lora(p, sums);
        }
        pin(sums.v);
      }

      int before = -1;  // the stage whose products may be incomplete
      for (int round = lora_rounds; round < rounds; round++, place.advance()) {
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
    if (maps.sends && threadIdx.x % kGroup == 0) tma_store_wait_read<0>();
}

template <Layout kLayout, int kColumns, typename Epilogue>
void launch(Stream& stream, const Product& p, const Epilogue& epilogue) {
  // A box has all rows of a K-major tile, or 64 of the depth of an MN-major one.
  const auto describe = [&](const Factor& f, bool k_major, int outer) {
    return make_tensor_map(stream, f.data, f.rows, f.columns, k_major ? outer : kDepth);
  };
  MapsOf<Epilogue> maps{};
  if (p.depth > 0) {
    maps.a = describe(p.a, a_k_major(kLayout), kRows);
    maps.b = describe(p.b, b_k_major(kLayout), tile_columns<Epilogue>(kColumns));
  }
  if (p.rank > 0) {
    maps.lora_a = describe(p.lora_a, a_k_major(kLayout), kRows);
    maps.lora_b = describe(p.lora_b, b_k_major(kLayout), tile_columns<Epilogue>(kColumns));
  }
  if constexpr (kTwin<Epilogue>) {
    const Product& twin = epilogue.twin;
    if (p.depth > 0) maps.twin_b = describe(twin.b, true, kColumns / 2);
    if (twin.rank > 0) {
      maps.twin_lora_a = describe(twin.lora_a, true, kRows);
      maps.twin_lora_b = describe(twin.lora_b, true, kColumns / 2);
    }
  }
  maps.sends = p.out_dtype == DType::bf16 && !p.accumulate && !p.residual && p.columns % kEight == 0 &&
               p.out && reinterpret_cast<uintptr_t>(p.out) % 16 == 0;
  if (maps.sends) maps.out = make_tensor_map(stream, p.out, p.rows, p.columns, 64);
  const int64_t items = tile_count(p, kRows, item_columns<Epilogue>(kColumns));
  stream.launch(sm90_gemm_kernel<kLayout, kColumns, Epilogue>,
                items < stream.hardware.multiprocessors ? items : stream.hardware.multiprocessors, kThreads,
                Ring<kColumns>::kShared, p, maps, epilogue);
}

/// The wider tile, if there is one for every multiprocessor.
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
