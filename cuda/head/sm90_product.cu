// The head's products (cuda/head/epilogues.cuh) on Hopper: a persistent grid of blocks of three warpgroups. One thread of
// the first loads tiles by TMA into a ring in shared memory; the other two multiply them by wgmma, 64 rows each of a tile
// of 128 × kColumns, 64 of the depth at a time, with sums in registers. The next tile is loaded during the epilogue of
// this one.
//   kColumns 256  48 KiB a stage, 4 stages; where there are such tiles for every multiprocessor, and for every fold
//   kColumns 128  32 KiB a stage, 6 stages
// A multiprocessor of an H100 does 2,048 multiply-adds a clock in bf16. A stage is 128·256·64 of them, 1,024
// clocks, for 48 KiB from the L2 cache: 48 bytes a clock (kColumns 128: 512 clocks and 64 bytes a clock). An element is
// summed over the depth in ascending steps of 16: its bits depend neither on its place in a tile nor on the size of
// the product. Beyond the factors TMA delivers zeros. bf16 values leave through shared memory by TMA, in whole 128-byte
// rows, while the next tile is multiplied.
#include "cuda/head/epilogues.cuh"
#include "cuda/runtime/tensor_map.h"
#include "cuda/sm90_block.cuh"
#include "cuda/sm90_instructions.cuh"

namespace steptrain::cuda {
namespace hopper {
namespace {

constexpr int kRows = 128;
constexpr int kDepth = kBoxColumns;  // of a stage

constexpr int kStoreBytes = 64 * 128;              // of a box of 64 rows by 64 columns
constexpr int kGroupStoreBytes = 2 * kStoreBytes;  // of a consumer: one fills while the other is read

/// Whether an epilogue can turn sums into values in place.
template <typename Item, typename Sums>
concept Applies = requires(Item item, Sums& sums) {
  item.apply(sums);
};

/// Stores the 64 rows that the 128 threads of a warpgroup hold to `out`, whose tensor map has boxes of 64
/// rows, from (row, column) on: 64 columns at a time, through the two boxes of the group at `buffer`,
/// 1024-byte aligned. `id` is a named barrier of the group. The group's first thread must wait for the last
/// reads (tma_store_wait_read) before it ends.
template <typename Sums>
__device__ void send_rows(char* buffer, const CUtensorMap* out, Sums& sums, int32_t row, int32_t column,
                          int id) {
  static_assert(Sums::kRows == 2 && Sums::kPairs % 16 == 0);  // so that every tile begins with the same box
  const int lane = static_cast<int>(threadIdx.x) % 32, first = static_cast<int>(threadIdx.x) % 128 / 32 * 16;
  const bool sends = threadIdx.x % 128 == 0;
#pragma unroll
  for (int box = 0; box < Sums::kPairs / 8; box++) {
    char* const to = buffer + box % 2 * kStoreBytes;
    if (sends) tma_store_wait_read<1>();
    warpgroup_barrier(id);
#pragma unroll
    for (int pair = 8 * box; pair < 8 * box + 8; pair += 2) {
      const uint32_t values[] = {round_to_bf16_pair(sums.at(0, pair, 0), sums.at(0, pair, 1)),
                                 round_to_bf16_pair(sums.at(1, pair, 0), sums.at(1, pair, 1)),
                                 round_to_bf16_pair(sums.at(0, pair + 1, 0), sums.at(0, pair + 1, 1)),
                                 round_to_bf16_pair(sums.at(1, pair + 1, 0), sums.at(1, pair + 1, 1))};
      // The lane's row and chunk of 16 bytes; chunks are permuted as in TMA's 128-byte swizzle.
      const int r = first + lane % 16, chunk = pair % 8 + lane / 16;
      stmatrix(to + r * 128 + (chunk ^ r % 8) * 16, values);
    }
    fence_proxy_async();
    warpgroup_barrier(id);
    if (sends) {
      tma_store(out, row, column + 64 * box, to);
      tma_store_commit();
    }
  }
}

template <int kColumns>
struct Ring {
  static constexpr int kStages = kColumns == 256 ? 4 : 6;
  static constexpr int kBytesA = kRows * kDepth * 2, kBytesB = kColumns * kDepth * 2;
  static constexpr int kStageBytes = kBytesA + kBytesB;
  static constexpr int kBytes = kStages * kStageBytes;
  static constexpr int kShared = kBytes + kConsumers * kGroupStoreBytes + 1024;  // and what aligns them
};

/// The factors, and the output where TMA stores it.
struct Maps {
  CUtensorMap a, b, out;
  bool sends;
};

template <int kColumns, typename Epilogue>
__global__ void __launch_bounds__(kThreads, 1)
    sm90_head_kernel(const __grid_constant__ Product p, const __grid_constant__ Maps maps,
                     const __grid_constant__ Epilogue epilogue) {
  using R = Ring<kColumns>;
  using Sums = TensorSums<2, kColumns / 8, 1>;
  constexpr bool kApplies = Applies<typename Epilogue::template Item<Sums>, Sums>;
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
  const int rounds = static_cast<int>((p.depth + kDepth - 1) / kDepth);
  RingPlace<R::kStages> place;
  /// body(tile, last) for each tile of an item.
  const auto each_tile = [&](int64_t index, auto body) {
    TilePlace tile = tile_place(p, index, kRows, kItem);
    if constexpr (kItem == kColumns) {
      body(tile, true);
    } else {
      const int64_t end = tile.column + kItem < p.columns ? tile.column + kItem : p.columns;
      for (; tile.column < end; tile.column += kColumns) body(tile, tile.column + kColumns >= end);
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
          mbarrier_expect_tx(barrier, R::kStageBytes);
          const int32_t depth = round * kDepth;
          tma_load(a_tile(place.stage), &maps.a, static_cast<int32_t>(tile.row), depth, barrier);
          tma_load(b_tile(place.stage), &maps.b, static_cast<int32_t>(tile.column), depth, barrier);
        }
      });
    }
    return;
  }

  grow_registers<232>();
  const int warp_row = (group - 1) * 64 + own_row();
  const auto a_factor = [&] {
    return matrix_descriptor(a_tile(place.stage) + (group - 1) * kGroupRows * kDepth * 2, 16);
  };
  const auto b_factor = [&] { return matrix_descriptor(b_tile(place.stage), 16); };
  constexpr int kStepUnits = kStep * 2 / 16;  // of a descriptor's address
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

      int before = -1;  // the stage whose products may be incomplete
      for (int round = 0; round < rounds; round++, place.advance()) {
        mbarrier_wait(&full[place.stage], place.parity);
        const uint64_t a = a_factor(), b = b_factor();
        wgmma_fence();
#pragma unroll
        for (int k = 0; k < kDepth / kStep; k++)
          wgmma<false, false>(sums.v, a + k * kStepUnits, b + k * kStepUnits);
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

template <int kColumns, typename Epilogue>
void launch(Stream& stream, const Product& p, const Epilogue& epilogue) {
  const auto describe = [&](const Factor& f, int rows) {
    return make_tensor_map(stream, f.data, f.rows, f.columns, rows);
  };
  Maps maps{};
  if (p.depth > 0) maps.a = describe(p.a, kRows), maps.b = describe(p.b, kColumns);
  maps.sends = p.out_dtype == DType::bf16 && p.columns % kEight == 0 && p.out &&
               reinterpret_cast<uintptr_t>(p.out) % 16 == 0;
  if (maps.sends) maps.out = make_tensor_map(stream, p.out, p.rows, p.columns, 64);
  const int64_t items = tile_count(p, kRows, item_columns<Epilogue>(kColumns));
  stream.launch(sm90_head_kernel<kColumns, Epilogue>,
                items < stream.hardware.multiprocessors ? items : stream.hardware.multiprocessors, kThreads,
                Ring<kColumns>::kShared, p, maps, epilogue);
}

}  // namespace
}  // namespace hopper

template <typename Epilogue>
void head_product_sm90(Stream& stream, const Product& p, const Epilogue& epilogue) {
  // A fold's tile is the same for any number of rows, and so are a row's bits.
  if (Epilogue::kColumns > 0 || tile_count(p, hopper::kRows, 256) >= stream.hardware.multiprocessors)
    return hopper::launch<256>(stream, p, epilogue);
  if constexpr (Epilogue::kColumns == 0) hopper::launch<128>(stream, p, epilogue);
}

template void head_product_sm90(Stream&, const Product&, const Fold&);
template void head_product_sm90(Stream&, const Product&, const Map<bf16, Probability>&);
template void head_product_sm90(Stream&, const Product&, const Map<bf16, LogitGradient>&);

}  // namespace steptrain::cuda
