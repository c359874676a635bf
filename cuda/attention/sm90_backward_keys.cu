// dk = scale·dsᵀ·q and dv = pᵀ·do on Hopper (see problem.h), for heads of 128 elements. A block takes
// 128 keys of one KV head and walks over the queries of the group's heads, or of a part of them, in order.
// wgmma computes sᵀ = k·qᵀ and dpᵀ = v·doᵀ from shared memory, so that pᵀ and dsᵀ, rounded to bf16, are
// already in the registers from which wgmma takes A for dv += pᵀ·do and dk += dsᵀ·q. The arithmetic of one
// consumer overlaps with the products of the other. Queries are columns here: the second warp writes their
// lse and delta to shared memory. Queries of the next sequence, and their do, are overwritten with zeros,
// because 0 times NaN or infinity is not 0. A tile of a consumer is 4·64·64·128 multiply-adds, at 2,048 a
// clock of an H100's multiprocessor 1,024 clocks, and 64·64 exponentials, 256 clocks at 16 a clock.
#include "cuda/attention/sm90_tiles.cuh"

namespace steptrain::cuda {
namespace {

using namespace hopper;

constexpr int kRows = kHopperRows;
constexpr int kSize = 128;

// Lanes of a consumer's warp that arrive where it gives a stage back: lane 0, behind __syncwarp, for all. Their
// reads of the stage's statistics precede the second warp's next writes in PTX's causality order: a lane's
// read; its bar.warp.sync, which orders memory among the lanes; lane 0's mbarrier.arrive, a release; the
// try_wait of the lane that writes, an acquire, true once all eight warps have arrived; its write. racecheck
// reports the two all the same (docs/kernels/cuda.md, "What racecheck reports"). With
// STEPTRAIN_EVERY_LANE_ARRIVES each lane arrives for itself, to show on a GPU whether the report goes away.
#ifdef STEPTRAIN_EVERY_LANE_ARRIVES
constexpr int kArrivals = 32;
#else
constexpr int kArrivals = 1;
#endif

struct Maps {
  CUtensorMap q, k, v, dout;
};

struct Layout {
  static constexpr int kQueries = 64;
  static constexpr int kStages = 4;
  using Own = BoxTile<kRows, kSize>;
  using Other = BoxTile<kQueries, kSize>;
  static constexpr int kTileBytes = 2 * Own::kBytes + 2 * kStages * Other::kBytes;
  static constexpr int kShared = kTileBytes + 2 * kStages * kQueries * 4 + 1024;
  static_assert(fits_in_shared(kShared));
};

__global__ void __launch_bounds__(kThreads, 1)
    sm90_attention_keys_kernel(const __grid_constant__ Attention p, const __grid_constant__ Maps maps,
                               const __grid_constant__ AttentionTensors t,
                               const __grid_constant__ GroupParts parts, const Columns columns) {
  using L = Layout;
  using Own = L::Own;
  using Other = L::Other;
  constexpr int kQueries = L::kQueries, kStages = L::kStages;
  __shared__ Barrier own_full, full[kStages], empty[kStages];
  char* const k_tile = aligned_shared();
  char* const v_tile = k_tile + Own::kBytes;
  const auto q_tile = [&](int stage) { return v_tile + Own::kBytes + 2 * stage * Other::kBytes; };
  const auto do_tile = [&](int stage) { return q_tile(stage) + Other::kBytes; };
  const auto statistics = [&](int stage) {
    return reinterpret_cast<float*>(k_tile + L::kTileBytes) + 2 * stage * kQueries;
  };

  const auto [tile, column] = find_tile(p, columns, blockIdx.x, kRows, true);
  const HeadRange heads = find_heads(p, parts, static_cast<unsigned>(column));
  const int32_t kv_head = heads.kv_head;
  if (!tile.exists) return;
  if (threadIdx.x == 0) {
    mbarrier_init(&own_full, 1);
    for (int stage = 0; stage < kStages; stage++) {
      mbarrier_init(&full[stage], 1 + 32);
      mbarrier_init(&empty[stage], kConsumerWarps * kArrivals);
    }
    fence_barrier_init();
  }
  __syncthreads();

  const int32_t last =
      tile.start + kRows < tile.length ? tile.start + kRows : tile.length;  // one past the keys
  const int32_t begin = first_query(p, tile.start) / kQueries * kQueries,
                end = end_query(p, tile, tile.start, last - tile.start);
  const int group = static_cast<int>(threadIdx.x) / kGroup, lane = static_cast<int>(threadIdx.x) % 32;
  RingPlace<kStages> place;
  /// body(head, query) for every tile, in order, with its place in the ring.
  const auto walk = [&](auto body) {
    for (int32_t head = heads.begin; head < heads.end; head++)
      for (int32_t query = begin; query < end; query += kQueries, place.advance()) body(head, query);
  };

  if (group == 0) {
    shrink_registers<40>();
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
    } else if (threadIdx.x / 32 == 1) {
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
    }
    return;
  }

  grow_registers<232>();
  const int row = (group - 1) * kGroupRows;
  const int32_t key = tile.start + row + own_row();
  const VisibleRange visible[2] = {visible_queries(p, tile, key), visible_queries(p, tile, key + 8)};
  const float scale = p.scale * kLog2e;
  float dk[kSize / 2] = {}, dv[kSize / 2] = {};
  RegisterFactor<kQueries / 2> factor_a, factor_ds;
  mbarrier_wait(&own_full, 0);
  walk([&](int32_t, int32_t query) {
    const int stage = place.stage;
    mbarrier_wait(&full[stage], place.parity);
    if (query + kQueries > tile.length) {
      Other::clear(q_tile(stage), tile.length - query);
      Other::clear(do_tile(stage), tile.length - query);
      wait_for_cleared();
    }
    // Rows are keys, columns are queries.
    float weights[kQueries / 2], slopes[kQueries / 2];
    multiply_tiles<Own, Other, kSize>(weights, k_tile, row, q_tile(stage));
    multiply_tiles<Own, Other, kSize>(slopes, v_tile, row, do_tile(stage));
    wgmma_wait<1>();  // for the scores
    pin(weights);

    const float* const lse = statistics(stage) + fragment_column(lane, 0);
#pragma unroll
    for (int j = 0; j < kQueries / 8; j++) {
      const float2 shift = *reinterpret_cast<const float2*>(lse + 8 * j);
#pragma unroll
      for (int half = 0; half < 2; half++) {
        float* const pair = weights + 4 * j + 2 * half;
        pair[0] = exp2_approximate(fmaf(pair[0], scale, -shift.x));
        pair[1] = exp2_approximate(fmaf(pair[1], scale, -shift.y));
      }
    }
    if (query + kQueries > tile.length ||
        !all_visible(p, tile, query, kQueries, tile.start + row, tile.start + row + kGroupRows)) {
#pragma unroll
      for (int i = 0; i < kQueries / 2; i++) {
        if (!query_visible(p, tile, visible[i / 2 % 2], query + fragment_column(lane, i))) weights[i] = 0;
      }
    }
    wgmma_wait<0>();  // for the slopes
    pin(slopes);
#pragma unroll
    for (int j = 0; j < kQueries / 8; j++) {
      const float2 delta = *reinterpret_cast<const float2*>(lse + kQueries + 8 * j);
#pragma unroll
      for (int half = 0; half < 2; half++) {
        const int i = 4 * j + 2 * half;
        slopes[i] = (slopes[i] - delta.x) * weights[i];
        slopes[i + 1] = (slopes[i + 1] - delta.y) * weights[i + 1];
      }
    }
    factor_a.round(weights);
    factor_ds.round(slopes);
    multiply_registers<Other>(dv, factor_a, do_tile(stage));
    multiply_registers<Other>(dk, factor_ds, q_tile(stage));
    wgmma_wait<0>();
    pin(dv);
    pin(dk);
    factor_a.pin();
    factor_ds.pin();
    __syncwarp();
    if (lane < kArrivals) mbarrier_arrive(&empty[stage]);
  });
  if (parts.dk) {
#pragma unroll
    for (int i = 0; i < kSize / 2; i += 2) {
      const int32_t at = key + i / 2 % 2 * 8;
      const int column = fragment_column(lane, i);
      put_part(parts.dk, p, tile, heads, at, column, dk[i] * p.scale, dk[i + 1] * p.scale);
      put_part(parts.dv, p, tile, heads, at, column, dv[i], dv[i + 1]);
    }
    return;
  }
  const int32_t first = tile.start + row;
  Own::write(k_tile, row, dk, {p.scale, p.scale}, static_cast<bf16*>(t.dk), tile, first, kv_head, p.kv_heads);
  Own::write(v_tile, row, dv, {1, 1}, static_cast<bf16*>(t.dv), tile, first, kv_head, p.kv_heads);
}

}  // namespace

void attention_keys_sm90(Stream& stream, const Attention& p, const AttentionTensors& t,
                         const GroupParts& parts, const Columns& columns) {
  if (p.tokens == 0) return;
  using L = Layout;
  const auto describe = [&](const void* data, int32_t heads, int rows) {
    return make_tensor_map(stream, data, p.tokens, int64_t{heads} * kSize, rows);
  };
  const Maps maps{describe(t.q, p.heads, L::kQueries), describe(t.k, p.kv_heads, kRows),
                  describe(t.v, p.kv_heads, kRows), describe(t.dout, p.heads, L::kQueries)};
  stream.launch(sm90_attention_keys_kernel, p.max_tiles * columns.all, kThreads, L::kShared, p, maps, t,
                parts, columns);
}

}  // namespace steptrain::cuda
