// dq, dk and dv of attention on Hopper in one kernel (see problem.h), for heads of 64 elements: five products of a tile
// instead of the seven of sm90_backward_queries.cu and sm90_backward_keys.cu, which heads of 128 take. A block takes 128 keys of one KV
// head and walks over the queries of the group's heads, or of a part of them, in order. As there, sᵀ = k·qᵀ and dpᵀ =
// v·doᵀ give pᵀ and dsᵀ, from whose registers come dv += pᵀ·do and dk += dsᵀ·q. dsᵀ also goes to shared memory, where
// both consumers meet for dq = ds·k over all 128 keys, 64 of the 128 queries each. Those sums leave in f32: the block whose turn it
// is stores or adds them, in descending order of the keys, by one bulk copy to each consumer's 16 KiB, so that the order
// of sums is fixed. A block waits for those after it in the sequence alone, which have drawn lower tickets, and finds
// that they are ahead: each begins at its own diagonal. Another launch rounds dq. Queries of the next sequence and their
// do, and keys and values of the next sequence, are overwritten with zeros, because 0 times NaN or infinity is not 0.
#include "cuda/attention/sm90_tiles.cuh"

namespace steptrain::cuda {
namespace {

using namespace hopper;

constexpr int kRows = kHopperRows;
constexpr int kSize = 64;
constexpr int kSumsBytes = 64 * 64 * 4;  // of a consumer's dq
constexpr int kBuffers = 2;              // of those
constexpr int kSlopesBarrier = 3;        // named, of both consumers

struct Maps {
  CUtensorMap q, k, v, dout;
};

struct Layout {
  static constexpr int kQueries = 128;
  static constexpr int kParts = kQueries / 64;
  static constexpr int kStages = 2;
  using Own = BoxTile<kRows, kSize>;
  using Other = BoxTile<kQueries, kSize>;
  using Slopes = BoxTile<kRows, kQueries>;  // rows are keys, columns queries
  static constexpr int kSlopes = 2 * Own::kBytes + 2 * kStages * Other::kBytes;
  static constexpr int kSums = kSlopes + Slopes::kBytes;
  static constexpr int kStatistics = kSums + kBuffers * kConsumers * kSumsBytes;
  static constexpr int kShared = kStatistics + 2 * kStages * kQueries * 4 + 1024;
  static_assert(fits_in_shared(kShared));
};

/// dq before it is rounded, tile by tile of the plan and head: for each consumer 16 KiB as its threads hold them, and how many blocks of keys have added theirs.
struct Sums {
  float* sums;
  uint32_t* added;
};
/// The place in Sums of a consumer's part of the queries from `query`.
__device__ int64_t place_of_sums(const Attention& p, const AttentionTile& tile, int32_t query, int32_t head,
                                 int consumer) {
  static_assert(Layout::kQueries == kRows);
  return (int64_t{tile.exists - 1 + query / kRows} * p.heads + head) * kConsumers + consumer;
}

__global__ void __launch_bounds__(kThreads, 1)
    sm90_attention_backward_kernel(const __grid_constant__ Attention p, const __grid_constant__ Maps maps,
                                   const __grid_constant__ AttentionTensors t,
                                   const __grid_constant__ GroupParts parts, const Columns columns,
                                   const Sums sums, uint32_t* ticket) {
  using L = Layout;
  using Own = L::Own;
  using Other = L::Other;
  using Slopes = L::Slopes;
  constexpr int kQueries = L::kQueries, kStages = L::kStages;
  __shared__ Barrier own_full, full[kStages], empty[kStages], slopes_empty, sums_full[kConsumers][kBuffers],
      sums_empty[kConsumers][kBuffers];
  __shared__ TileOfColumn item;
  char* const k_tile = aligned_shared();
  char* const v_tile = k_tile + Own::kBytes;
  const auto q_tile = [&](int stage) { return v_tile + Own::kBytes + 2 * stage * Other::kBytes; };
  const auto do_tile = [&](int stage) { return q_tile(stage) + Other::kBytes; };
  char* const ds_tile = k_tile + L::kSlopes;
  const auto dq_tile = [&](int consumer, int buffer) {
    return k_tile + L::kSums + (consumer * kBuffers + buffer) * kSumsBytes;
  };
  const auto statistics = [&](int stage) {
    return reinterpret_cast<float*>(k_tile + L::kStatistics) + 2 * stage * kQueries;
  };

  if (threadIdx.x == 0) {
    const unsigned drawn = atomicAdd(ticket, 1u);
    if (drawn == gridDim.x - 1) *ticket = 0;
    // Not mirrored: the last keys, which have the fewest queries, come first.
    item = find_tile(p, columns, drawn, kRows);
    mbarrier_init(&own_full, 1);
    mbarrier_init(&slopes_empty, kConsumers * kGroup);
    for (int stage = 0; stage < kStages; stage++) {
      mbarrier_init(&full[stage], 1 + 32);
      mbarrier_init(&empty[stage], kConsumers * kGroup);
    }
    for (int consumer = 0; consumer < kConsumers; consumer++)
      for (int buffer = 0; buffer < kBuffers; buffer++) {
        mbarrier_init(&sums_full[consumer][buffer], kGroup);
        mbarrier_init(&sums_empty[consumer][buffer], 1);
      }
    fence_barrier_init();
  }
  __syncthreads();
  const AttentionTile tile = item.tile;
  if (!tile.exists) return;
  const HeadRange heads = find_heads(p, parts, static_cast<unsigned>(item.column));
  const int32_t kv_head = heads.kv_head;

  const int32_t last =
      tile.start + kRows < tile.length ? tile.start + kRows : tile.length;  // one past the keys
  const int32_t begin = first_query(p, tile.start) / kQueries * kQueries,
                end = end_query(p, tile, tile.start, last - tile.start);
  const int group = static_cast<int>(threadIdx.x) / kGroup, lane = static_cast<int>(threadIdx.x) % 32;
  RingPlace<kStages> place;  // of queries, and of dq
  static_assert(kStages == 2 && kBuffers == 2);
  /// body(head, query) for every tile, in order, with its place in the rings.
  const auto walk = [&](auto body) {
    for (int32_t head = heads.begin; head < heads.end; head++)
      for (int32_t query = begin; query < end; query += kQueries, place.advance()) body(head, query);
  };

  if (group == 0) {
    shrink_registers<40>();
    const int warp = static_cast<int>(threadIdx.x) / 32;
    if (threadIdx.x == 0) {
      mbarrier_expect_tx(&own_full, 2 * Own::kBytes);
      Own::fetch(k_tile, &maps.k, tile.begin + tile.start, kv_head, &own_full);
      Own::fetch(v_tile, &maps.v, tile.begin + tile.start, kv_head, &own_full);
      walk([&](int32_t head, int32_t query) {
        // In the first round all stages are empty: the phase before the first counts as ended.
        mbarrier_wait(&empty[place.stage], place.parity ^ 1);
        Barrier* const barrier = &full[place.stage];
        mbarrier_expect_tx(barrier, 2 * Other::kBytes);
        Other::fetch(q_tile(place.stage), &maps.q, tile.begin + query, head, barrier);
        Other::fetch(do_tile(place.stage), &maps.dout, tile.begin + query, head, barrier);
      });
    } else if (warp == 1) {
      walk([&](int32_t head, int32_t query) {
        mbarrier_wait(&empty[place.stage], place.parity ^ 1);
        float* const to = statistics(place.stage);
#pragma unroll
        for (int i = 0; i < kQueries; i += 32) {
          const bool inside = query + i + lane < tile.length;
          const int64_t at = head * p.tokens + tile.begin + query + i + lane;
          to[i + lane] = inside ? t.lse[at] * kLog2e : kPaddedLse;
          to[kQueries + i + lane] = inside ? t.delta[at] : 0.0f;
        }
        mbarrier_arrive(&full[place.stage]);
      });
    } else if (warp >= 2 && lane == 0) {
      const int consumer = warp - 2;
      int64_t open = -1;  // whose copy is under way, in the other buffer
      uint32_t next = 0;
      const auto close = [&] {  // after the wait for that copy
        if (open < 0) return;
        store_release(&sums.added[open], next);
        mbarrier_arrive(&sums_empty[consumer][place.stage ^ 1]);
        open = -1;
      };
      walk([&](int32_t head, int32_t query) {
        const int64_t at = place_of_sums(p, tile, query, head, consumer);
        // Blocks of keys add in descending order, from the last one that any of the queries sees.
        const auto turn =
            static_cast<uint32_t>((p.causal ? query : tile.length - 1) / kRows - tile.start / kRows);
        // While the consumer is still at work.
        if (turn > 0 && !has_count(&sums.added[at], turn)) {
          bulk_wait<0>();
          close();
          wait_for_count(&sums.added[at], turn);
        }
        mbarrier_wait(&sums_full[consumer][place.stage], place.parity);
        float* const to = sums.sums + at * (kSumsBytes / 4);
        if (turn > 0) {
          fence_proxy_async_global();
          bulk_add(to, dq_tile(consumer, place.stage), kSumsBytes);
        } else {
          bulk_store(to, dq_tile(consumer, place.stage), kSumsBytes);
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
    return;
  }

  grow_registers<232>();
  const int consumer = group - 1, row = consumer * kGroupRows;
  // Where a lane's row of ds begins in shared memory, and its chunk, which the row permutes; see Slopes::at.
  const int slopes_row = row + static_cast<int>(threadIdx.x) % kGroup / 32 * 16 + lane % 16;
  uint32_t slopes_at = static_cast<uint32_t>(slopes_row * 128 + ((lane / 16 ^ slopes_row) & 7) * 16);
  const float scale = p.scale * kLog2e;
  float dk[kSize / 2] = {}, dv[kSize / 2] = {};
  RegisterFactor<32> factor_a[L::kParts], factor_ds[L::kParts];
  mbarrier_wait(&own_full, 0);
  if (tile.start + kRows > tile.length) {
    Own::clear(k_tile, tile.length - tile.start);
    Own::clear(v_tile, tile.length - tile.start);
    wait_for_cleared();
  }
  /// Weighs keys 0 in the eyes of 64 queries that do not see them. Queries beyond the sequence do so by their lse.
  const auto mask = [&](float(&weights)[32], int32_t query) {
    const int32_t first = tile.start + row;
    const bool at_border = first + kGroupRows > tile.length || (p.causal && first + kGroupRows - 1 > query) ||
                           (p.window > 0 && first <= query + 63 - p.window);
    if (!at_border && !p.branch) return;
    const AttentionTile sequence = item.tile;  // read again, so that no register holds it during the loop
    const int32_t key = sequence.start + row + own_row(), column = query + fragment_column(lane, 0);
    const VisibleRange visible[2] = {visible_queries(p, sequence, key),
                                     visible_queries(p, sequence, key + 8)};
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
  };
  int32_t query = begin;
  for (int32_t left = (heads.end - heads.begin) * ((end - begin + kQueries - 1) / kQueries); left > 0;
       left--, query = query + kQueries < end ? query + kQueries : begin, place.advance()) {
    const int stage = place.stage;
    mbarrier_wait(&full[stage], place.parity);
    if (query + kQueries > tile.length) {
      Other::clear(q_tile(stage), tile.length - query);
      Other::clear(do_tile(stage), tile.length - query);
      wait_for_cleared();
    }
    // Rows are keys, columns are queries, 64 at a time.
    float weights[L::kParts][32], slopes[L::kParts][32];
    const auto start = [&](int part) {
      multiply_tiles<Own, Other, kSize>(weights[part], k_tile, row, q_tile(stage) + part * 64 * 128);
      multiply_tiles<Own, Other, kSize>(slopes[part], v_tile, row, do_tile(stage) + part * 64 * 128);
    };
    start(0);
    forget(slopes_at);  // so that no addresses made of it are kept
#pragma unroll
    for (int part = 0; part < L::kParts; part++) {
      // For the scores; behind them are these slopes, and the sums of the part before.
      if (part == 0) {
        wgmma_wait<1>();
      } else {
        wgmma_wait<3>();
      }
      pin(weights[part]);
      const float* const lse = statistics(stage) + 64 * part + fragment_column(lane, 0);
#pragma unroll
      for (int j = 0; j < 8; j++) {
        const float2 shift = *reinterpret_cast<const float2*>(lse + 8 * j);
#pragma unroll
        for (int half = 0; half < 2; half++) {
          float* const pair = weights[part] + 4 * j + 2 * half;
          pair[0] = exp2_approximate(fmaf(pair[0], scale, -shift.x));
          pair[1] = exp2_approximate(fmaf(pair[1], scale, -shift.y));
        }
      }
      mask(weights[part], query + 64 * part);
      if (part == 0) {
        wgmma_wait<0>();
      } else {
        wgmma_wait<2>();
      }
      pin(slopes[part]);
#pragma unroll
      for (int j = 0; j < 8; j++) {
        const float2 delta = *reinterpret_cast<const float2*>(lse + kQueries + 8 * j);
#pragma unroll
        for (int half = 0; half < 2; half++) {
          const int i = 4 * j + 2 * half;
          slopes[part][i] = (slopes[part][i] - delta.x) * weights[part][i];
          slopes[part][i + 1] = (slopes[part][i + 1] - delta.y) * weights[part][i + 1];
        }
      }
      factor_a[part].round(weights[part]);
      factor_ds[part].round(slopes[part]);
      // Neither consumer reads ds of the step before any more; with two stages a step's parity is its stage.
      if (part == 0) mbarrier_wait(&slopes_empty, static_cast<uint32_t>(place.stage) ^ 1);
#pragma unroll
      for (int k = 0; k < 4; k++)
        stmatrix(ds_tile + part * Slopes::kBoxBytes + (slopes_at ^ static_cast<uint32_t>(k * 32)),
                 factor_ds[part].a[k]);
      if (part + 1 < L::kParts) start(part + 1);
      multiply_registers<Other>(dv, factor_a[part], do_tile(stage) + part * 64 * 128);
      multiply_registers<Other>(dk, factor_ds[part], q_tile(stage) + part * 64 * 128);
    }
    fence_proxy_async();
    // For both consumers' ds of this step.
    named_barrier_sync(kSlopesBarrier);
    // Of the consumer's queries.
    float dq[32];
    const uint64_t a = matrix_descriptor(ds_tile + consumer * Slopes::kBoxBytes, Slopes::kBoxBytes),
                   b = matrix_descriptor(k_tile, Own::kBoxBytes);
    wgmma_fence();
    wgmma<true, true, true>(dq, a, b);
#pragma unroll
    for (int k = kStep; k < kRows; k += kStep) wgmma<true, true>(dq, a + k * 128 / 16, b + k * 128 / 16);
    wgmma_commit();
    wgmma_wait<1>();  // for dk and dv
    pin(dv);
    pin(dk);
#pragma unroll
    for (int part = 0; part < L::kParts; part++) {
      factor_a[part].pin();
      factor_ds[part].pin();
    }
    mbarrier_arrive(&empty[stage]);
    wgmma_wait<0>();
    pin(dq);
    mbarrier_arrive(&slopes_empty);
    mbarrier_wait(&sums_empty[consumer][place.stage], place.parity ^ 1);
    auto* const to = reinterpret_cast<float4*>(dq_tile(consumer, place.stage)) + threadIdx.x % kGroup;
#pragma unroll
    for (int i = 0; i < 32; i += 4) to[i / 4 * kGroup] = make_float4(dq[i], dq[i + 1], dq[i + 2], dq[i + 3]);
    fence_proxy_async();
    mbarrier_arrive(&sums_full[consumer][place.stage]);
  }
  const AttentionTile written = item.tile;
  const HeadRange range = find_heads(p, parts, static_cast<unsigned>(item.column));
  if (parts.dk) {
#pragma unroll
    for (int i = 0; i < kSize / 2; i += 2) {
      const int32_t at = written.start + row + own_row() + i / 2 % 2 * 8;
      const int column = fragment_column(lane, i);
      put_part(parts.dk, p, written, range, at, column, dk[i] * p.scale, dk[i + 1] * p.scale);
      put_part(parts.dv, p, written, range, at, column, dv[i], dv[i + 1]);
    }
    return;
  }
  named_barrier_sync(kSlopesBarrier);  // neither consumer reads keys any more
  const int32_t first = written.start + row;
  Own::write(k_tile, row, dk, {p.scale, p.scale}, static_cast<bf16*>(t.dk), written, first, range.kv_head,
             p.kv_heads);
  Own::write(v_tile, row, dv, {1, 1}, static_cast<bf16*>(t.dv), written, first, range.kv_head, p.kv_heads);
}

/// dq = scale·sums, rounded. A block for a consumer's part of each tile and head.
__global__ void __launch_bounds__(kGroup)
    sm90_attention_round_kernel(const __grid_constant__ Attention p, const float* sums, bf16* dq) {
  const unsigned part = blockIdx.x % kConsumers, rest = blockIdx.x / kConsumers;
  const auto head = static_cast<int32_t>(rest % static_cast<unsigned>(p.heads));
  const AttentionTile tile = find_tile(p, rest / static_cast<unsigned>(p.heads), kRows);
  if (!tile.exists) return;
  const int consumer = static_cast<int>(part);
  const auto* const from = reinterpret_cast<const float4*>(
                               sums + place_of_sums(p, tile, tile.start, head, consumer) * (kSumsBytes / 4)) +
                           threadIdx.x;
  const int32_t query = tile.start + consumer * kGroupRows + own_row();
  const int column = fragment_column(static_cast<int>(threadIdx.x) % 32, 0);
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

}  // namespace

void attention_backward_sm90(Stream& stream, const Attention& p, const AttentionTensors& t,
                             const GroupParts& parts, const Columns& columns) {
  if (p.tokens == 0) return;
  using L = Layout;
  const auto describe = [&](const void* data, int32_t heads, int rows) {
    return make_tensor_map(stream, data, p.tokens, int64_t{heads} * kSize, rows);
  };
  const Maps maps{describe(t.q, p.heads, L::kQueries), describe(t.k, p.kv_heads, kRows),
                  describe(t.v, p.kv_heads, kRows), describe(t.dout, p.heads, L::kQueries)};
  const int64_t places = p.max_tiles * p.heads * kConsumers;
  const Sums sums{stream.scratch.take<float>(places * (kSumsBytes / 4)),
                  stream.scratch.take<uint32_t>(places)};
  stream.zero(sums.added, places * 4);
  stream.launch(sm90_attention_backward_kernel, p.max_tiles * columns.all, kThreads, L::kShared, p, maps, t,
                parts, columns, sums, stream.ticket);
  stream.launch(sm90_attention_round_kernel, places, kGroup, 0, p, sums.sums, static_cast<bf16*>(t.dq));
}

}  // namespace steptrain::cuda
