// What the backward kernels of five products on Hopper share (sm90_backward.cu, sm90_backward_128.cu). A block takes
// 128 keys of one KV head and walks over the queries of the group's heads, or of a part of them, in order. Its first
// group loads queries, writes their statistics and adds the sums of dq, in f32: the block whose turn it is stores or
// adds them, in descending order of the keys, by one bulk copy of each consumer's 16 KiB, so that the order of sums is
// fixed. A block waits for those after it in the sequence alone, which have drawn lower tickets, and finds that they are
// ahead: each begins at its own diagonal. Another launch rounds dq.
#pragma once

#include "cuda/attention/sm90_tiles.cuh"

namespace steptrain::cuda {
namespace hopper {

constexpr int kSumsBytes = 64 * 64 * 4;  // of a consumer's dq
constexpr int kBuffers = 2;              // of those
constexpr int kStages = 2;               // of queries
constexpr int kKeysBarrier = 3;          // named, of both consumers

struct BackwardMaps {
  CUtensorMap q, k, v, dout;
};

/// Shared memory of heads of 64 or 128 elements: k and v; q and do of each stage; ds, of 128 one for each stage; sums of
/// dq; lse and delta of each stage.
template <int kHead>
struct BackwardLayout {
  static constexpr int kSize = kHead;
  static constexpr int kQueries = kSize == 64 ? 128 : 64;  // of a step
  static constexpr int kSteps = kHopperRows / kQueries;    // of a tile of the plan
  using Own = BoxTile<kHopperRows, kSize>;
  using Other = BoxTile<kQueries, kSize>;
  using Slopes = BoxTile<kHopperRows, kQueries>;  // rows are keys, columns queries
  static constexpr int kSlopes = 2 * Own::kBytes + 2 * kStages * Other::kBytes;
  static constexpr int kSums = kSlopes + (kSize == 64 ? 1 : kStages) * Slopes::kBytes;
  static constexpr int kStatistics = kSums + kBuffers * kConsumers * kSumsBytes;
  static constexpr int kShared = kStatistics + 2 * kStages * kQueries * 4 + 1024;
  static_assert(fits_in_shared(kShared));

  char* base;
  __device__ char* k_tile() const { return base; }
  __device__ char* v_tile() const { return base + Own::kBytes; }
  __device__ char* q_tile(int stage) const { return base + 2 * Own::kBytes + 2 * stage * Other::kBytes; }
  __device__ char* do_tile(int stage) const { return q_tile(stage) + Other::kBytes; }
  __device__ char* ds_tile(int stage = 0) const { return base + kSlopes + stage * Slopes::kBytes; }
  __device__ char* dq_tile(int consumer, int buffer) const {
    return base + kSums + (consumer * kBuffers + buffer) * kSumsBytes;
  }
  __device__ float* statistics(int stage) const {
    return reinterpret_cast<float*>(base + kStatistics) + 2 * stage * kQueries;
  }
};

/// dq before it is rounded, tile by tile of the plan and head: for each of the tile's steps and each consumer 16 KiB as
/// the consumer's threads hold them, and how many blocks of keys have added theirs.
struct Sums {
  float* sums;
  uint32_t* added;
};
/// The place in Sums of a consumer's part of the queries from `query`.
template <int kSize>
__device__ int64_t place_of_sums(const Attention& p, const AttentionTile& tile, int32_t query, int32_t head,
                                 int consumer) {
  using L = BackwardLayout<kSize>;
  const int64_t of_tile = int64_t{tile.exists - 1 + query / kHopperRows} * p.heads + head;
  return (of_tile * L::kSteps + query % kHopperRows / L::kQueries) * kConsumers + consumer;
}

struct BackwardBarriers {
  Barrier own_full, full[kStages], empty[kStages];
  Barrier sums_full[kConsumers][kBuffers], sums_empty[kConsumers][kBuffers];

  /// fence_barrier_init() must follow.
  __device__ void init() {
    mbarrier_init(&own_full, 1);
    for (int stage = 0; stage < kStages; stage++) {
      mbarrier_init(&full[stage], 1 + 32);
      mbarrier_init(&empty[stage], kConsumers * kGroup);
    }
    for (int consumer = 0; consumer < kConsumers; consumer++)
      for (int buffer = 0; buffer < kBuffers; buffer++) {
        mbarrier_init(&sums_full[consumer][buffer], kGroup);
        mbarrier_init(&sums_empty[consumer][buffer], 1);
      }
  }
};

/// The tile of the next ticket. Not mirrored: the last keys, which have the fewest queries, come first.
__device__ inline TileOfColumn draw_tile(const Attention& p, const Columns& columns, uint32_t* ticket) {
  const unsigned drawn = atomicAdd(ticket, 1u);
  if (drawn == gridDim.x - 1) *ticket = 0;
  return find_tile(p, columns, drawn, kHopperRows);
}

/// What a block walks over: steps of kQueries queries from `begin`, up to `end`, for each head.
struct BackwardWalk {
  AttentionTile tile;
  HeadRange heads;
  int32_t begin, end;
};
template <int kSize>
__device__ BackwardWalk find_walk(const Attention& p, const GroupParts& parts, const TileOfColumn& item) {
  constexpr int kQueries = BackwardLayout<kSize>::kQueries;
  const AttentionTile tile = item.tile;
  const int32_t last =
      tile.start + kHopperRows < tile.length ? tile.start + kHopperRows : tile.length;  // one past the keys
  return {tile, find_heads(p, parts, static_cast<unsigned>(item.column)),
          first_query(p, tile.start) / kQueries * kQueries,
          end_query(p, tile, tile.start, last - tile.start)};
}

/// The first group's part of a block: a thread that loads, a warp for statistics, one for each consumer's sums.
template <int kSize>
__device__ void feed(const Attention& p, const BackwardMaps& maps, const AttentionTensors& t,
                     const Sums& sums, const BackwardWalk& block, const BackwardLayout<kSize>& shared,
                     BackwardBarriers& barriers) {
  using L = BackwardLayout<kSize>;
  using Own = typename L::Own;
  using Other = typename L::Other;
  constexpr int kQueries = L::kQueries;
  static_assert(kStages == 2 && kBuffers == 2);
  const AttentionTile tile = block.tile;
  RingPlace<kStages> place;  // of queries, and of dq
  /// body(head, query) for every step, in order, with its place in the rings.
  const auto walk = [&](auto body) {
    for (int32_t head = block.heads.begin; head < block.heads.end; head++)
      for (int32_t query = block.begin; query < block.end; query += kQueries, place.advance())
        body(head, query);
  };
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  if (threadIdx.x == 0) {
    mbarrier_expect_tx(&barriers.own_full, 2 * Own::kBytes);
    Own::fetch(shared.k_tile(), &maps.k, tile.begin + tile.start, block.heads.kv_head, &barriers.own_full);
    Own::fetch(shared.v_tile(), &maps.v, tile.begin + tile.start, block.heads.kv_head, &barriers.own_full);
    walk([&](int32_t head, int32_t query) {
      // In the first round all stages are empty: the phase before the first counts as ended.
      mbarrier_wait(&barriers.empty[place.stage], place.parity ^ 1);
      Barrier* const barrier = &barriers.full[place.stage];
      mbarrier_expect_tx(barrier, 2 * Other::kBytes);
      Other::fetch(shared.q_tile(place.stage), &maps.q, tile.begin + query, head, barrier);
      Other::fetch(shared.do_tile(place.stage), &maps.dout, tile.begin + query, head, barrier);
    });
  } else if (warp == 1) {
    walk([&](int32_t head, int32_t query) {
      mbarrier_wait(&barriers.empty[place.stage], place.parity ^ 1);
      float* const to = shared.statistics(place.stage);
#pragma unroll
      for (int i = 0; i < kQueries; i += 32) {
        const bool inside = query + i + lane < tile.length;
        const int64_t at = head * p.tokens + tile.begin + query + i + lane;
        to[i + lane] = inside ? t.lse[at] * kLog2e : kPaddedLse;
        to[kQueries + i + lane] = inside ? t.delta[at] : 0.0f;
      }
      mbarrier_arrive(&barriers.full[place.stage]);
    });
  } else if (warp >= 2 && lane == 0) {
    const int consumer = warp - 2;
    int64_t open = -1;  // whose copy is under way, in the other buffer
    uint32_t next = 0;
    const auto close = [&] {  // after the wait for that copy
      if (open < 0) return;
      store_release(&sums.added[open], next);
      mbarrier_arrive(&barriers.sums_empty[consumer][place.stage ^ 1]);
      open = -1;
    };
    walk([&](int32_t head, int32_t query) {
      const int64_t at = place_of_sums<kSize>(p, tile, query, head, consumer);
      // Blocks of keys add in descending order, from the last one that any of the queries sees.
      const auto turn = static_cast<uint32_t>((p.causal ? query : tile.length - 1) / kHopperRows -
                                              tile.start / kHopperRows);
      // While the consumer is still at work.
      if (turn > 0 && !has_count(&sums.added[at], turn)) {
        bulk_wait<0>();
        close();
        wait_for_count(&sums.added[at], turn);
      }
      mbarrier_wait(&barriers.sums_full[consumer][place.stage], place.parity);
      float* const to = sums.sums + at * (kSumsBytes / 4);
      if (turn > 0) {
        fence_proxy_async_global();
        bulk_add(to, shared.dq_tile(consumer, place.stage), kSumsBytes);
      } else {
        bulk_store(to, shared.dq_tile(consumer, place.stage), kSumsBytes);
      }
      tma_store_commit();
      bulk_wait<1>();
      close();
      open = at;
      next = turn + 1;
    });
    bulk_wait<0>();
    close();
  }
}

/// Waits for the block's keys and values; zeros replace those of the next sequence. By both consumers, as the next one.
template <int kSize>
__device__ void wait_for_keys(const BackwardLayout<kSize>& shared, BackwardBarriers& barriers,
                              const AttentionTile& tile) {
  using Own = typename BackwardLayout<kSize>::Own;
  mbarrier_wait(&barriers.own_full, 0);
  if (tile.start + kHopperRows <= tile.length) return;
  Own::clear(shared.k_tile(), tile.length - tile.start);
  Own::clear(shared.v_tile(), tile.length - tile.start);
  wait_for_cleared();
}
/// The same for the queries of a step and their do.
template <int kSize>
__device__ void wait_for_queries(const BackwardLayout<kSize>& shared, BackwardBarriers& barriers,
                                 const RingPlace<kStages>& place, const AttentionTile& tile, int32_t query) {
  using L = BackwardLayout<kSize>;
  mbarrier_wait(&barriers.full[place.stage], place.parity);
  if (query + L::kQueries <= tile.length) return;
  L::Other::clear(shared.q_tile(place.stage), tile.length - query);
  L::Other::clear(shared.do_tile(place.stage), tile.length - query);
  wait_for_cleared();
}

/// Hands a consumer's dq to the warp that adds it.
template <int kSize>
__device__ void hand_over(const float (&dq)[32], int consumer, int buffer, uint32_t parity,
                          const BackwardLayout<kSize>& shared, BackwardBarriers& barriers) {
  mbarrier_wait(&barriers.sums_empty[consumer][buffer], parity ^ 1);
  auto* const to = reinterpret_cast<float4*>(shared.dq_tile(consumer, buffer)) + threadIdx.x % kGroup;
#pragma unroll
  for (int i = 0; i < 32; i += 4) to[i / 4 * kGroup] = make_float4(dq[i], dq[i + 1], dq[i + 2], dq[i + 3]);
  fence_proxy_async();
  mbarrier_arrive(&barriers.sums_full[consumer][buffer]);
}

/// Scores to probabilities; `lse` of the thread's first column.
__device__ inline void weigh(float (&weights)[32], const float* lse, float scale) {
#pragma unroll
  for (int j = 0; j < 8; j++) {
    const float2 shift = *reinterpret_cast<const float2*>(lse + 8 * j);
#pragma unroll
    for (int half = 0; half < 2; half++) {
      float* const pair = weights + 4 * j + 2 * half;
      pair[0] = exp2_approximate(fmaf(pair[0], scale, -shift.x));
      pair[1] = exp2_approximate(fmaf(pair[1], scale, -shift.y));
    }
  }
}

/// dp to ds = p·(dp - delta); `delta` of the thread's first column.
__device__ inline void slope(float (&slopes)[32], const float (&weights)[32], const float* delta) {
#pragma unroll
  for (int j = 0; j < 8; j++) {
    const float2 mean = *reinterpret_cast<const float2*>(delta + 8 * j);
#pragma unroll
    for (int half = 0; half < 2; half++) {
      const int i = 4 * j + 2 * half;
      slopes[i] = (slopes[i] - mean.x) * weights[i];
      slopes[i + 1] = (slopes[i + 1] - mean.y) * weights[i + 1];
    }
  }
}

/// Weighs a consumer's keys, from `row` of the tile, 0 in the eyes of 64 queries that do not see them. Queries beyond the
/// sequence do so by their lse. `item` is in shared memory, so that no register holds it during the loop.
__device__ inline void mask(float (&weights)[32], const Attention& p, const AttentionTile& tile,
                            const TileOfColumn& item, int row, int32_t query) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int32_t first = tile.start + row;
  const bool at_border = first + kGroupRows > tile.length || (p.causal && first + kGroupRows - 1 > query) ||
                         (p.window > 0 && first <= query + 63 - p.window);
  if (!at_border && !p.branch) return;
  const AttentionTile sequence = item.tile;
  const int32_t key = sequence.start + row + own_row(), column = query + fragment_column(lane, 0);
  const VisibleRange visible[2] = {visible_queries(p, sequence, key), visible_queries(p, sequence, key + 8)};
#pragma unroll
  for (int i = 0; i < 32; i++) {
    const int32_t at = column + fragment_column(0, i);
    if (at < visible[i / 2 % 2].first || at > visible[i / 2 % 2].last) weights[i] = 0;
  }
  if (!p.branch) return;
#pragma unroll
  for (int i = 0; i < 32; i += 4)
#pragma unroll
    for (int e = 0; e < 2; e++) {
      const int32_t at = column + fragment_column(0, i + e),
                    branch = at < sequence.length ? p.branch[sequence.begin + at] : 0;
#pragma unroll
      for (int half = 0; half < 2; half++)
        if (visible[half].branch != 0 && visible[half].branch != branch) weights[i + 2 * half + e] = 0;
    }
}

/// Writes a consumer's dk and dv, or its part of them.
template <int kSize>
__device__ void write_keys(const Attention& p, const GroupParts& parts, const AttentionTensors& t,
                           const TileOfColumn& item, const BackwardLayout<kSize>& shared, int row,
                           const float (&dk)[kSize / 2], const float (&dv)[kSize / 2]) {
  using Own = typename BackwardLayout<kSize>::Own;
  const AttentionTile tile = item.tile;
  const HeadRange range = find_heads(p, parts, static_cast<unsigned>(item.column));
  if (parts.dk) {
#pragma unroll
    for (int i = 0; i < kSize / 2; i += 2) {
      const int32_t at = tile.start + row + own_row() + i / 2 % 2 * 8;
      const int column = fragment_column(static_cast<int>(threadIdx.x) % 32, i);
      put_part(parts.dk, p, tile, range, at, column, dk[i] * p.scale, dk[i + 1] * p.scale);
      put_part(parts.dv, p, tile, range, at, column, dv[i], dv[i + 1]);
    }
    return;
  }
  named_barrier_sync(kKeysBarrier);  // neither consumer reads keys any more
  const int32_t first = tile.start + row;
  Own::write(shared.k_tile(), row, dk, {p.scale, p.scale}, static_cast<bf16*>(t.dk), tile, first,
             range.kv_head, p.kv_heads);
  Own::write(shared.v_tile(), row, dv, {1, 1}, static_cast<bf16*>(t.dv), tile, first, range.kv_head,
             p.kv_heads);
}

/// dq = scale·sums, rounded. A block for each step of each tile and head and each consumer, which holds its queries
/// where a step has 128, else its half of the head.
template <int kSize>
__global__ void __launch_bounds__(kGroup)
    sm90_attention_round_kernel(const __grid_constant__ Attention p, const float* sums, bf16* dq) {
  using L = BackwardLayout<kSize>;
  constexpr unsigned kParts = L::kSteps * kConsumers;
  constexpr bool kAllColumns = kSize == 64;
  const unsigned part = blockIdx.x % kParts, rest = blockIdx.x / kParts;
  const auto head = static_cast<int32_t>(rest % static_cast<unsigned>(p.heads));
  const AttentionTile tile = find_tile(p, rest / static_cast<unsigned>(p.heads), kHopperRows);
  if (!tile.exists) return;
  const int consumer = static_cast<int>(part % kConsumers);
  const int32_t first = tile.start + static_cast<int32_t>(part / kConsumers) * L::kQueries;
  if (first >= tile.length) return;
  const auto* const from =
      reinterpret_cast<const float4*>(sums + place_of_sums<kSize>(p, tile, first, head, consumer) *
                                                 (kSumsBytes / 4)) +
      threadIdx.x;
  const int32_t query = first + own_row() + (kAllColumns ? consumer * kGroupRows : 0);
  const int column =
      (kAllColumns ? 0 : consumer * 64) + fragment_column(static_cast<int>(threadIdx.x) % 32, 0);
  float4 values[8];
#pragma unroll
  for (int i = 0; i < 8; i++) values[i] = from[i * kGroup];
  bf16* const to = dq + ((tile.begin + query) * int64_t{p.heads} + head) * kSize + column;
#pragma unroll
  for (int i = 0; i < 8; i++) {
    if (query < tile.length)
      *reinterpret_cast<uint32_t*>(to + 8 * i) =
          round_to_bf16_pair(values[i].x * p.scale, values[i].y * p.scale);
    if (query + 8 < tile.length)
      *reinterpret_cast<uint32_t*>(to + int64_t{8} * p.heads * kSize + 8 * i) =
          round_to_bf16_pair(values[i].z * p.scale, values[i].w * p.scale);
  }
}

/// Launches a kernel of heads of kSize, and the rounding of its dq.
template <int kSize, typename Kernel>
void launch_backward(Stream& stream, Kernel kernel, const Attention& p, const AttentionTensors& t,
                     const GroupParts& parts, const Columns& columns) {
  if (p.tokens == 0) return;
  using L = BackwardLayout<kSize>;
  const auto describe = [&](const void* data, int32_t heads, int rows) {
    return make_tensor_map(stream, data, p.tokens, int64_t{heads} * kSize, rows);
  };
  const BackwardMaps maps{describe(t.q, p.heads, L::kQueries), describe(t.k, p.kv_heads, kHopperRows),
                          describe(t.v, p.kv_heads, kHopperRows), describe(t.dout, p.heads, L::kQueries)};
  const int64_t places = p.max_tiles * p.heads * L::kSteps * kConsumers;
  const Sums sums{stream.scratch.take<float>(places * (kSumsBytes / 4)),
                  stream.scratch.take<uint32_t>(places)};
  stream.zero(sums.added, places * 4);
  stream.launch(kernel, p.max_tiles * columns.all, kThreads, L::kShared, p, maps, t, parts, columns, sums,
                stream.ticket);
  stream.launch(sm90_attention_round_kernel<kSize>, places, kGroup, 0, p, sums.sums,
                static_cast<bf16*>(t.dq));
}

}  // namespace hopper
}  // namespace steptrain::cuda
