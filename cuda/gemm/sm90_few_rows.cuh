// x·Wᵀ of 17 to 256 rows of x on Hopper, by wgmma: W streams from memory through all multiprocessors, and x comes
// with it from the L2 cache. A tile is all rows of x by kColumns rows of W; one thread of the first warpgroup loads it
// by TMA, 64 of the depth at a time, through a ring in shared memory, and every other warpgroup multiplies 64 rows of
// x: as many warpgroups as x needs. kColumns is chosen so that tiles times slices of the depth
// (cuda/gemm/slices.h) come close to the number of multiprocessors.
//   kColumns 144, 256 rows: a stage is 50 KiB and 1,152 clocks of the tensor cores, 44 bytes a clock
//   kColumns 144, 64 rows:  26 KiB, of which 18 are W's; W at 3 TB/s is 13 bytes a clock of each multiprocessor
// Up to 64 rows a block takes less than half of the shared memory and of the registers, so that two share a
// multiprocessor, of one kernel or of two: the ring of the next kernel fills with weights before its turn.
// The order of sums: a slice begins with its LoRA pair, the first one alone, scaled, and adds the depth in ascending
// steps of 16, as cuda/gemm/sm90_tiles.cuh does; an element is its slices, added in order. Where there are several,
// blocks leave the sums of their slice in workspace, and a second launch adds them, by all multiprocessors.
#pragma once

#include <algorithm>
#include <initializer_list>

#include "cuda/gemm/few_rows.cuh"
#include "cuda/gemm/slices.h"
#include "cuda/runtime/tensor_map.h"
#include "cuda/sm90_block.cuh"
#include "cuda/sm90_instructions.cuh"

namespace steptrain::cuda {
namespace hopper {
namespace rows {

constexpr int kMostStages = 8;
constexpr int kDepth = kBoxColumns;  // of a stage
static_assert(kDepth == kSliceDepth);

/// Products in a launch that have tiles of their own, and weights.
template <typename Epilogue>
constexpr int kProducts = few::kSeveral<Epilogue> ? few::StoreEach::kCount : 1;
template <typename Epilogue>
constexpr int kWeights = kTwin<Epilogue> ? 2 : kProducts<Epilogue>;

template <int kWeights>
struct Maps {
  CUtensorMap a, b[kWeights], lora_a[kWeights], lora_b[kWeights];
};

/// How a launch divides the work. Items are the slices of a tile, then those of the next; tiles and items of several
/// products are counted through.
template <int kProducts>
struct Plan {
  int items = 0;
  int stages = 0;   // of the ring
  int steps = 0;    // of the depth, kDepth each
  int blocks = 1;   // of 64 rows, for each consumer
  float4* partial;  // of sliced tiles: [tile][consumer][kMostSlices][a thread's sums, by four][thread]
  struct {
    int first_item, first_tile, slices;
  } of[kProducts];
};

/// Of x's tile, of so many times 64 rows, and of W's.
__host__ __device__ constexpr int stage_bytes(int row_blocks, int columns) {
  return (row_blocks * kGroupRows + columns) * kDepth * 2;
}
/// The ring, its barriers, and what aligns it.
__host__ __device__ constexpr int shared_bytes(int row_blocks, int columns, int stages) {
  return stages * (stage_bytes(row_blocks, columns) + 2 * static_cast<int>(sizeof(Barrier))) + 1024;
}

/// What a block does at a time: one slice of the depth of a tile.
struct Work {
  int product, tile, slice, slices, column;
  int first_step, steps;        // of the frozen product
  int own_rounds, lora_rounds;  // of the LoRA pairs; the twin's follow its own
  __device__ int rounds() const { return lora_rounds + steps; }
};

template <typename Epilogue>
__device__ const Product& product_of(const Product& p, const Epilogue& epilogue, int i) {
  if constexpr (few::kSeveral<Epilogue>) {
    return epilogue.of[i];
  } else {
    return p;
  }
}

/// Everything in it comes from parameters at constant places, so that the compiler knows that threads agree.
template <int kColumns, typename Epilogue>
__device__ Work work_of(const Product& first, const Epilogue& epilogue, const Plan<kProducts<Epilogue>>& plan,
                        int index) {
  Work work{};
#pragma unroll
  for (int i = 0; i < kProducts<Epilogue>; i++) {
    if (i > 0 && index < plan.of[i].first_item) continue;
    const int slices = plan.of[i].slices, within = index - plan.of[i].first_item;
    const int tile = slices == 4 ? within >> 2 : slices == 2 ? within >> 1 : within;
    work.product = i, work.slices = slices, work.slice = within & (slices - 1);
    work.tile = plan.of[i].first_tile + tile;
    work.column = tile * tile_columns<Epilogue>(kColumns);
    work.own_rounds = static_cast<int>(product_of(first, epilogue, i).rank + kDepth - 1) / kDepth;
  }
  work.first_step = first_step(plan.steps, work.slice, work.slices);
  work.steps = first_step(plan.steps, work.slice + 1, work.slices) - work.first_step;
  if (work.slice > 0) {
    work.own_rounds = 0;
    return work;
  }
  work.lora_rounds = work.own_rounds;
  if constexpr (kTwin<Epilogue>)
    work.lora_rounds += static_cast<int>(epilogue.twin.rank + kDepth - 1) / kDepth;
  return work;
}

/// What an epilogue (cuda/gemm/parts.cuh) is handed: two rows, 8 apart, by two neighbouring columns, and those of the
/// twin.
template <bool kTwin>
struct PairSums {
  static constexpr int kRows = 2, kPairs = kTwin ? 2 : 1;
  float v[kRows][kPairs][2];
  int64_t first_row, first_column;
  /// Of four neighbouring sums of a wgmma.
  __device__ void set(int pair, const float4& sums) {
    v[0][pair][0] = sums.x, v[0][pair][1] = sums.y, v[1][pair][0] = sums.z, v[1][pair][1] = sums.w;
  }
  __device__ float& at(int i, int pair, int e) { return v[i][pair][e]; }
  __device__ int64_t row(int i) const { return first_row + 8 * i; }
  __device__ int64_t column(int) const { return first_column; }
};

/// A consumer multiplies kBlocks times 64 rows.
template <int kColumns, int kBlocks, typename Epilogue>
__global__ void __launch_bounds__(kThreads, 1)
    sm90_few_rows_kernel(const __grid_constant__ Product first,
                         const __grid_constant__ Maps<kWeights<Epilogue>> maps,
                         const __grid_constant__ Epilogue epilogue,
                         const __grid_constant__ Plan<kProducts<Epilogue>> plan) {
  using Sums = float[kColumns / 2];  // of a thread, as wgmma leaves them
  constexpr bool kHalves = kTwin<Epilogue>;
  constexpr int kBoxRows = tile_columns<Epilogue>(kColumns), kBoxBytes = kBoxRows * kDepth * 2;
  constexpr int kRowsBytes = kGroupRows * kDepth * 2;
  constexpr bool kGrows = kBlocks * kColumns > 2 * 112;  // more sums than 168 registers have room for
  static_assert(kBoxRows % 8 == 0);
  // All that is used before the turn lies in dynamic shared memory.
  const int groups = static_cast<int>(blockDim.x) / kGroup - 1, stages = plan.stages;
  const int bytes = stage_bytes(groups * kBlocks, kColumns), bytes_a = groups * kBlocks * kRowsBytes;
  char* const ring = aligned_shared();
  Barrier* const full = reinterpret_cast<Barrier*>(ring + stages * bytes);
  Barrier* const empty = full + stages;
  const auto a_tile = [&](int stage) { return ring + stage * bytes; };
  const auto b_tile = [&](int stage) { return a_tile(stage) + bytes_a; };
  const auto work_at = [&](int index) { return work_of<kColumns>(first, epilogue, plan, index); };

  const int group = static_cast<int>(threadIdx.x) / kGroup, lane = static_cast<int>(threadIdx.x) % 32;
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < stages; stage++) {
      mbarrier_init(&full[stage], 1);
      mbarrier_init(&empty[stage], static_cast<uint32_t>(groups * kGroup / 32));
    }
    fence_barrier_init();
  }
  __syncthreads();
  int stage = 0;
  uint32_t parity = 0;
  const auto advance = [&] {
    if (++stage < stages) return;
    stage = 0;
    parity ^= 1;
  };

  if (group == 0) {
    if constexpr (kGrows) shrink_registers<56>();
    if (threadIdx.x != 0) return take_turn();
    /// Makes the stage wait for its bytes, and loads the tile of W, or of the LoRA pair's second factor.
    const auto load_weights = [&](const Work& work, int round, int into) {
      Barrier* const barrier = &full[into];
      char* const to = b_tile(into);
      const int32_t column = work.column;
      mbarrier_expect_tx(barrier, static_cast<uint32_t>(bytes));
      if (round >= work.lora_rounds) {
        const int32_t depth = (work.first_step + round - work.lora_rounds) * kDepth;
        tma_load(to, &maps.b[work.product], column, depth, barrier);
        if constexpr (kHalves) tma_load(to + kBoxBytes, &maps.b[1], column, depth, barrier);
      } else if constexpr (kHalves) {
        // For the other half the pair is zeros, from a box below the matrix.
        const bool own = round < work.own_rounds;
        const int32_t depth = (own ? round : round - work.own_rounds) * kDepth;
        const auto below = static_cast<int32_t>(first.columns);
        const CUtensorMap* const from = &maps.lora_b[own ? 0 : 1];
        tma_load(to, from, own ? column : below, depth, barrier);
        tma_load(to + kBoxBytes, from, own ? below : column, depth, barrier);
      } else {
        tma_load(to, &maps.lora_b[work.product], column, round * kDepth, barrier);
      }
    };
    /// Loads the tile of x, or of the pair's first factor.
    const auto load_rows = [&](const Work& work, int round, int into) {
      const CUtensorMap* from = &maps.a;
      int32_t depth = (work.first_step + round - work.lora_rounds) * kDepth;
      if (round < work.lora_rounds) {
        const bool of_twin = round >= work.own_rounds;
        from = &maps.lora_a[of_twin ? 1 : work.product];
        depth = (of_twin ? round - work.own_rounds : round) * kDepth;
      }
      tma_load(a_tile(into), from, 0, depth, &full[into]);
    };

    // Of the first stages the weights go first, before the turn: `ahead` of them. One loop, which takes fewer registers.
    int index = static_cast<int>(blockIdx.x), round = 0;
    Work work = work_at(index);
    int ahead = work.lora_rounds > 0 ? 0 : work.steps < stages ? work.steps : stages;
    bool early = ahead > 0;
    if (!early) take_turn();
    while (true) {
      if (early || round >= ahead) {
        // In the first turn of the ring all stages are empty: the phase before the first counts as ended.
        mbarrier_wait(&empty[stage], parity ^ 1);
        load_weights(work, round, stage);
      }
      if (!early) load_rows(work, round, stage);
      advance();
      round++;
      if (early && round == ahead) {
        take_turn();
        early = false;
        round = stage = 0;
        parity = 0;
      } else if (round == work.rounds()) {
        index += static_cast<int>(gridDim.x);
        if (index >= plan.items) return;
        work = work_at(index);
        round = ahead = 0;
      }
    }
  }

  if constexpr (kGrows) grow_registers<224>();
  take_turn();
  const int consumer = group - 1;
  const auto a_factor = [&] {
    return matrix_descriptor(a_tile(stage) + consumer * kBlocks * kRowsBytes, 16);
  };
  const auto b_factor = [&] { return matrix_descriptor(b_tile(stage), 16); };
  constexpr int kStepUnits = kStep * 2 / 16;  // of a descriptor's address
  const auto release = [&](int of) {
    if (lane == 0) mbarrier_arrive(&empty[of]);
  };

  for (int index = static_cast<int>(blockIdx.x); index < plan.items; index += static_cast<int>(gridDim.x)) {
    const Work work = work_at(index);
    float sums[kBlocks][kColumns / 2] = {};
    const auto each_block = [&](auto body) {
#pragma unroll
      for (int block = 0; block < kBlocks; block++) body(sums[block], block);
    };
    const auto pin_all = [&] { each_block([](Sums& of, int) { pin(of); }); };
    /// Multiplies the next rounds of the ring.
    const auto multiply = [&](int rounds) {
      int before = -1;  // the stage whose products may be incomplete
      for (int round = 0; round < rounds; round++, advance()) {
        mbarrier_wait(&full[stage], parity);
        const uint64_t a = a_factor(), b = b_factor();
        wgmma_fence();
#pragma unroll
        for (int k = 0; k < kDepth / kStep; k++)
          each_block([&](Sums& of, int block) {
            wgmma<false, false>(of, a + block * (kRowsBytes / 16) + k * kStepUnits, b + k * kStepUnits);
          });
        wgmma_commit();
        wgmma_wait<1>();
        if (before >= 0) release(before);
        before = stage;
      }
      wgmma_wait<0>();
      pin_all();
      if (before >= 0) release(before);
    };

    const Product& p = product_of(first, epilogue, work.product);
    if (work.lora_rounds > 0) {
      multiply(work.lora_rounds);
      each_block([&](Sums& of, int) {
#pragma unroll
        for (int i = 0; i < kColumns / 2; i++)
          of[i] *= kHalves && i >= kColumns / 4 ? twin_of(epilogue, p).lora_scale : p.lora_scale;
      });
      pin_all();
    }
    multiply(work.steps);

    const auto four = [](const Sums& of, int i) {
      return float4{of[4 * i], of[4 * i + 1], of[4 * i + 2], of[4 * i + 3]};
    };
    if (work.slices > 1) {
      constexpr int kEach = kBlocks * kColumns / 8 * kGroup;  // of a slice, by four sums
      float4* const kept = plan.partial +
                           (int64_t{work.tile * groups + consumer} * kMostSlices + work.slice) * kEach +
                           threadIdx.x % kGroup;
      each_block([&](const Sums& of, int block) {
#pragma unroll
        for (int i = 0; i < kColumns / 8; i++) kept[(block * kColumns / 8 + i) * kGroup] = four(of, i);
      });
      continue;
    }
    using Pair = PairSums<kHalves>;
    constexpr int kPairs = kColumns / 8 / Pair::kPairs;
    typename Epilogue::template Item<Pair> item(epilogue, p);
    each_block([&](const Sums& of, int block) {
#pragma unroll
      for (int pair = 0; pair < kPairs; pair++) {
        int64_t column = work.column;
        forget(column);  // else the places of all pairs are computed ahead
        Pair pairs;
        pairs.first_row = (consumer * kBlocks + block) * kGroupRows + own_row();
        pairs.first_column = column + fragment_column(lane, 4 * pair);
#pragma unroll
        for (int half = 0; half < Pair::kPairs; half++) pairs.set(half, four(of, pair + half * kPairs));
        item.add(pairs, true);
      }
    });
  }
}

/// Adds the slices of tiles that have several, and hands the sums to the epilogue: a block for each four sums of each
/// consumer's threads (with a twin, four of each), of `row_blocks` times 64 rows by `columns` of W.
template <typename Epilogue>
__global__ void __launch_bounds__(kGroup)
    sm90_add_slices_kernel(const __grid_constant__ Product first, const __grid_constant__ Epilogue epilogue,
                           const __grid_constant__ Plan<kProducts<Epilogue>> plan, int columns,
                           int row_blocks) {
  using Pair = PairSums<kTwin<Epilogue>>;
  take_turn();
  const int pairs = columns / 8 / Pair::kPairs, unit = static_cast<int>(blockIdx.x);
  const int pair = unit % pairs, row_block = unit / pairs % row_blocks, tile = unit / pairs / row_blocks;
  int product = 0;
  while (product + 1 < kProducts<Epilogue> && tile >= plan.of[product + 1].first_tile) product++;
  const int slices = plan.of[product].slices;
  if (slices == 1) return;
  // A tile's row blocks lie by consumers, of plan.blocks row blocks each.
  const int each = plan.blocks * columns / 8 * kGroup;  // of a slice
  const int consumer = row_block / plan.blocks, block = row_block % plan.blocks;
  const int place = tile * (row_blocks / plan.blocks) + consumer;
  const float4* const from = plan.partial + int64_t{place} * kMostSlices * each +
                             (block * columns / 8 + pair) * kGroup + threadIdx.x;
  Pair sums;
  float4 slice[Pair::kPairs][kMostSlices];
#pragma unroll
  for (int half = 0; half < Pair::kPairs; half++)
#pragma unroll
    for (int i = 0; i < kMostSlices; i++)
      if (i < slices) slice[half][i] = from[i * each + half * pairs * kGroup];
#pragma unroll
  for (int half = 0; half < Pair::kPairs; half++) {
    float4 total = slice[half][0];
#pragma unroll
    for (int i = 1; i < kMostSlices; i++)
      if (i < slices)
        total = {total.x + slice[half][i].x, total.y + slice[half][i].y, total.z + slice[half][i].z,
                 total.w + slice[half][i].w};
    sums.set(half, total);
  }
  const Product& p = product_of(first, epilogue, product);
  sums.first_row = row_block * kGroupRows + own_row();
  sums.first_column = int64_t{tile - plan.of[product].first_tile} * (columns / Pair::kPairs) +
                      fragment_column(static_cast<int>(threadIdx.x) % 32, 4 * pair);
  typename Epilogue::template Item<Pair>(epilogue, p).add(sums, true);
}

/// The products of a launch that have tiles of their own.
template <typename Epilogue, typename F>
void each_product(const Product& p, const Epilogue& epilogue, F body) {
  if constexpr (few::kSeveral<Epilogue>) {
    for (int i = 0; i < kProducts<Epilogue>; i++) body(epilogue.of[i], i);
  } else {
    body(p, 0);
  }
}

/// The plan for tiles of `columns` of W, without ring and workspace; `tiles` becomes their number.
template <typename Epilogue>
Plan<kProducts<Epilogue>> plan_of(const Product& p, const Epilogue& epilogue, int columns, int& tiles) {
  Plan<kProducts<Epilogue>> plan{};
  plan.steps = static_cast<int>((p.depth + kDepth - 1) / kDepth);
  const int width = kTwin<Epilogue> ? columns / 2 : columns;
  tiles = 0;
  each_product(p, epilogue, [&](const Product& of, int i) {
    const int slices = slices_of(of.columns, of.depth),
              own = static_cast<int>((of.columns + width - 1) / width);
    plan.of[i] = {plan.items, tiles, slices};
    plan.items += own * slices, tiles += own;
  });
  return plan;
}

template <int kColumns, int kBlocks, typename Epilogue>
void launch(Stream& stream, const Product& p, const Epilogue& epilogue) {
  constexpr int kBoxRows = tile_columns<Epilogue>(kColumns);
  const int groups = static_cast<int>((p.rows + kBlocks * kGroupRows - 1) / (kBlocks * kGroupRows));
  const int row_blocks = groups * kBlocks;
  const auto describe = [&](const Factor& f, int rows) {
    return make_tensor_map(stream, f.data, f.rows, f.columns, rows);
  };
  Maps<kWeights<Epilogue>> maps{};
  Span weights[kWeights<Epilogue>] = {};
  maps.a = describe(p.a, row_blocks * kGroupRows);
  const auto add_weight = [&](const Product& of, int i) {
    if (of.columns == 0) return;
    weights[i] = {of.b.data, of.b.rows * of.b.columns * 2};
    maps.b[i] = describe(of.b, kBoxRows);
    if (of.rank == 0) return;
    maps.lora_a[i] = describe(of.lora_a, row_blocks * kGroupRows);
    maps.lora_b[i] = describe(of.lora_b, kBoxRows);
  };
  each_product(p, epilogue, add_weight);
  if constexpr (kTwin<Epilogue>) add_weight(epilogue.twin, 1);

  int tiles = 0;
  auto plan = plan_of(p, epilogue, kColumns, tiles);
  // Of two blocks on a multiprocessor each takes 1 KiB of its shared memory besides.
  const int blocks = row_blocks == 1 ? 2 : 1;
  const int64_t room = (stream.hardware.shared_per_block - 1024 * (blocks - 1)) / blocks;
  plan.stages = kMostStages;
  while (plan.stages > 2 && shared_bytes(row_blocks, kColumns, plan.stages) > room) plan.stages--;
  plan.blocks = kBlocks;
  const bool sliced = plan.items > tiles;
  if (sliced)
    plan.partial =
        stream.scratch.take<float4>(int64_t{tiles} * row_blocks * kMostSlices * (kColumns / 8) * kGroup);
  const auto start = [&](std::initializer_list<Span> reads) {
    stream.launch_early(reads, sm90_few_rows_kernel<kColumns, kBlocks, Epilogue>,
                        std::min(plan.items, blocks * stream.hardware.multiprocessors), kGroup * (1 + groups),
                        shared_bytes(row_blocks, kColumns, plan.stages), p, maps, epilogue, plan);
  };
  if constexpr (kWeights<Epilogue> == 3) {
    start({weights[0], weights[1], weights[2]});
  } else if constexpr (kWeights<Epilogue> == 2) {
    start({weights[0], weights[1]});
  } else {
    start({weights[0]});
  }
  if (!sliced) return;
  const int pairs = kColumns / 8 / (kTwin<Epilogue> ? 2 : 1);
  stream.launch_early({}, sm90_add_slices_kernel<Epilogue>, int64_t{tiles} * row_blocks * pairs, kGroup, 0, p,
                      epilogue, plan, kColumns, row_blocks);
}

/// Chooses the tile whose turns of all multiprocessors take the fewest clocks, by what a stage takes of the tensor
/// cores (2 · columns · blocks of rows) and of the L2 cache, at 48 bytes a clock.
template <int kBlocks, int... kColumns, typename Epilogue>
void launch_best(Stream& stream, const Product& p, const Epilogue& epilogue) {
  const int64_t blocks = (p.rows + kGroupRows - 1) / kGroupRows, every = stream.hardware.multiprocessors;
  int best = 0;
  int64_t least = INT64_MAX;
  for (const int columns : {kColumns...}) {
    int tiles = 0;
    const int64_t turns = (plan_of(p, epilogue, columns, tiles).items + every - 1) / every;
    const int64_t clocks = turns * std::max(6 * columns * blocks, 8 * (columns + blocks * kGroupRows));
    if (clocks >= least) continue;
    least = clocks, best = columns;
  }
  (void)((best == kColumns && (launch<kColumns, kBlocks>(stream, p, epilogue), true)) || ...);
}

template <typename Epilogue>
void launch(Stream& stream, const Product& p, const Epilogue& epilogue) {
  if (p.rows <= kConsumers * kGroupRows) return launch_best<1, 144, 80, 64, 32>(stream, p, epilogue);
  launch_best<2, 144, 112, 80, 64, 32>(stream, p, epilogue);
}

}  // namespace rows
}  // namespace hopper
}  // namespace steptrain::cuda
