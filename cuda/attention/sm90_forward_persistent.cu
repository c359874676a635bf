// Attention forward on Hopper with persistent blocks: the arithmetic, the order of sums and so the bits of
// cuda/attention/sm90_forward.cu. A block draws the next tile of queries by a ticket, those with the most keys first,
// head after head as they fit into the L2 cache. Its producer loads the next tile's queries, keys and values while the
// consumers end this one, and results leave by TMA through the tile's own queries. Two tiles of queries are under way: a
// stage of the ring has its queries, then its results, and says which tile it is. Tiles at the border of the mask alone
// are masked; with branches these are also the tiles that hold a key of another branch.
#include "cuda/attention/sm90_softmax.cuh"
#include "cuda/attention/sm90_tiles.cuh"

namespace steptrain::cuda {
namespace {

using namespace hopper;

constexpr int kRows = kHopperRows;
constexpr int kOwnStages = 2;

struct Maps {
  CUtensorMap q, k, v, o;
};

template <int kSize>
struct Layout {
  static constexpr int kStages = kSize == 64 ? 4 : 2;
  using Queries = BoxTile<kRows, kSize>;
  using Keys = BoxTile<kKeys, kSize>;
  static constexpr int kShared = kOwnStages * Queries::kBytes + 2 * kStages * Keys::kBytes + 1024;
  static_assert(fits_in_shared(kShared));
};

/// The order in which the two consumers start products: 1, 2, 1, 2, …, over all tiles of the block. One that ran ahead
/// into the next tile of queries without waiting for the other could arrive twice where each is to arrive once.
struct EndlessTurns {
  int group;
  bool first = true;
  __device__ void take() {
    if (group == 2 || !first) named_barrier_sync(kConsumers + group);
    first = false;
  }
  __device__ void pass() { named_barrier_arrive(kConsumers + 3 - group); }
  /// Takes the turn that nobody else would.
  __device__ void end() {
    if (group == 1 && !first) named_barrier_sync(kConsumers + group);
  }
};

/// Hides the keys [key, key + kKeys) that are outside of a thread's two rows' ranges.
__device__ inline void mask_range(float (&scores)[kScores], const VisibleRange (&visible)[2], int32_t key,
                                  int lane) {
  const int32_t column = key + fragment_column(lane, 0);
#pragma unroll
  for (int half = 0; half < 2; half++) {
    const int32_t first = visible[half].first - column, last = visible[half].last - column;
#pragma unroll
    for (int i = 2 * half; i < kScores; i += 4)
#pragma unroll
      for (int e = 0; e < 2; e++) {
        const int32_t at = fragment_column(0, i + e);
        if (at < first || at > last) scores[i + e] = kMasked;
      }
  }
}

/// Whether the warp's rows see every key of the tile that is in the sequence, as far as branches decide.
__device__ inline bool sees_branches(const Attention& p, const AttentionTile& tile,
                                     const VisibleRange (&visible)[2], int32_t key, int lane) {
  const int32_t own = __shfl_sync(0xffffffffu, visible[0].branch, 0);
  const bool alike = __all_sync(0xffffffffu, visible[0].branch == own && visible[1].branch == own) != 0;
  bool seen = true;
#pragma unroll
  for (int i = 0; i < kKeys; i += 32) {
    const int32_t at = key + i + lane, branch = at < tile.length ? p.branch[tile.begin + at] : 0;
    seen = seen && (branch == 0 || (alike && branch == own));
  }
  return __all_sync(0xffffffffu, seen) != 0;
}
/// Hides keys of other branches.
__device__ inline void mask_branches(float (&scores)[kScores], const Attention& p, const AttentionTile& tile,
                                     const VisibleRange (&visible)[2], int32_t key, int lane) {
#pragma unroll
  for (int i = 0; i < kScores; i += 4)
#pragma unroll
    for (int e = 0; e < 2; e++) {
      const int32_t at = key + fragment_column(lane, i + e),
                    branch = at < tile.length ? p.branch[tile.begin + at] : 0;
#pragma unroll
      for (int half = 0; half < 2; half++)
        if (branch != 0 && branch != visible[half].branch) scores[i + 2 * half + e] = kMasked;
    }
}

template <int kSize>
__global__ void __launch_bounds__(kThreads, 1)
    sm90_attention_persistent_kernel(const __grid_constant__ Attention p, const __grid_constant__ Maps maps,
                                     bf16* o, float* lse, const Columns heads, const unsigned total,
                                     uint32_t* ticket) {
  using L = Layout<kSize>;
  using Queries = typename L::Queries;
  using Keys = typename L::Keys;
  constexpr int kStages = L::kStages;
  __shared__ Barrier q_full[kOwnStages], q_empty[kOwnStages], k_full[kStages], k_empty[kStages],
      v_full[kStages], v_empty[kStages];
  __shared__ TileOfColumn items[kOwnStages];
  char* const shared = aligned_shared();
  const auto q_tile = [&](int stage) { return shared + stage * Queries::kBytes; };
  const auto k_tile = [&](int stage) { return q_tile(kOwnStages) + stage * Keys::kBytes; };
  const auto v_tile = [&](int stage) { return k_tile(kStages + stage); };

  if (threadIdx.x == 0) {
    for (int stage = 0; stage < kOwnStages; stage++) {
      mbarrier_init(&q_full[stage], 1);
      mbarrier_init(&q_empty[stage], kConsumers);
    }
    for (int stage = 0; stage < kStages; stage++) {
      mbarrier_init(&k_full[stage], 1);
      mbarrier_init(&v_full[stage], 1);
      mbarrier_init(&k_empty[stage], kConsumerWarps);
      mbarrier_init(&v_empty[stage], kConsumerWarps);
    }
    fence_barrier_init();
  }
  __syncthreads();

  const auto first_tile = [&](const AttentionTile& tile) { return first_key(p, tile.start) / kKeys * kKeys; };
  const int group = static_cast<int>(threadIdx.x) / kGroup, lane = static_cast<int>(threadIdx.x) % 32;
  RingPlace<kOwnStages> own;
  RingPlace<kStages> place;

  if (group == 0) {
    shrink_registers<40>();
    if (threadIdx.x != 0) return;
    const auto fetch = [&](char* to, const CUtensorMap* from, int64_t token, int32_t head, Barrier* full) {
      mbarrier_expect_tx(full, Keys::kBytes);
      Keys::fetch(to, from, token, head, full);
    };
    unsigned drawn = atomicAdd(ticket, 1u);
    for (;; own.advance()) {
      TileOfColumn item{};
      for (; drawn < total; drawn = atomicAdd(ticket, 1u)) {
        item = find_tile(p, heads, drawn, kRows);
        if (item.tile.exists) break;
      }
      // In the first round all stages are empty: the phase before the first counts as ended.
      mbarrier_wait(&q_empty[own.stage], own.parity ^ 1);
      items[own.stage] = item;
      if (drawn >= total) {
        mbarrier_arrive(&q_full[own.stage]);
        break;
      }
      const AttentionTile tile = item.tile;
      const int32_t kv_head = item.column / p.group;
      mbarrier_expect_tx(&q_full[own.stage], Queries::kBytes);
      Queries::fetch(q_tile(own.stage), &maps.q, tile.begin + tile.start, item.column, &q_full[own.stage]);
      drawn = atomicAdd(ticket, 1u);  // arrives during the loads
      const int32_t end = end_key(p, tile, tile.start, kRows);
      for (int32_t key = first_tile(tile); key < end; key += kKeys, place.advance()) {
        mbarrier_wait(&k_empty[place.stage], place.parity ^ 1);
        fetch(k_tile(place.stage), &maps.k, tile.begin + key, kv_head, &k_full[place.stage]);
        mbarrier_wait(&v_empty[place.stage], place.parity ^ 1);
        fetch(v_tile(place.stage), &maps.v, tile.begin + key, kv_head, &v_full[place.stage]);
      }
    }
    // Each block draws one ticket beyond the last tile; the last such draw sets the counter back.
    if (drawn == total + gridDim.x - 1) *ticket = 0;
    return;
  }

  grow_registers<232>();
  const int row = (group - 1) * kGroupRows;
  const bool sends = threadIdx.x % kGroup == 0;
  const float scale = p.scale * kLog2e;
  const auto release = [&](Barrier* barrier) {
    if (lane == 0) mbarrier_arrive(barrier);
  };
  EndlessTurns turns{group};
  int stored = -1;  // the stage whose results may still be on their way
  const auto release_own = [&] {
    if (!sends || stored < 0) return;
    tma_store_wait_read<0>();
    mbarrier_arrive(&q_empty[stored]);
  };

  for (;; own.advance()) {
    mbarrier_wait(&q_full[own.stage], own.parity);
    const auto [tile, head] = items[own.stage];
    if (!tile.exists) break;
    char* const q_own = q_tile(own.stage);
    const int32_t begin = first_tile(tile), end = end_key(p, tile, tile.start, kRows);
    const int32_t first = tile.start + row;  // of the consumer's queries
    const int32_t query = first + own_row();
    const auto mask = [&](float(&scores)[kScores], int32_t key) {
      const int32_t last = key + kKeys;
      const bool at_border = last > tile.length || (p.causal && last - 1 > first) ||
                             (p.window > 0 && key <= first + kGroupRows - 1 - p.window);
      if (!at_border && !p.branch) return;
      const VisibleRange visible[2] = {visible_keys(p, tile, query), visible_keys(p, tile, query + 8)};
      if (at_border) mask_range(scores, visible, key, lane);
      if (p.branch && !sees_branches(p, tile, visible, key, lane))
        mask_branches(scores, p, tile, visible, key, lane);
    };
    float out[kSize / 2] = {};
    Softmax softmax;
    RegisterFactor<kScores> factor_a;
    float decay[2];

    mbarrier_wait(&k_full[place.stage], place.parity);
    {
      float scores[kScores];
      turns.take();
      multiply_tiles<Queries, Keys, kSize>(scores, q_own, row, k_tile(place.stage));
      turns.pass();
      release_own();
      wgmma_wait<0>();
      pin(scores);
      release(&k_empty[place.stage]);
      mask(scores, begin);
      softmax.make_weights(scores, scale, decay);  // there are no earlier sums
      factor_a.round(scores);
    }
    for (int32_t key = begin + kKeys; key < end; key += kKeys) {
      const RingPlace<kStages> before = place;  // of the values that `factor_a` is multiplied by
      place.advance();
      float scores[kScores];
      mbarrier_wait(&k_full[place.stage], place.parity);
      mbarrier_wait(&v_full[before.stage], before.parity);
      turns.take();
      multiply_tiles<Queries, Keys, kSize>(scores, q_own, row, k_tile(place.stage));
      multiply_registers<Keys>(out, factor_a, v_tile(before.stage));
      turns.pass();
      wgmma_wait<1>();  // for the scores
      pin(scores);
      release(&k_empty[place.stage]);
      mask(scores, key);
      softmax.make_weights(scores, scale, decay);
      wgmma_wait<0>();
      pin(out);
      factor_a.pin();
      release(&v_empty[before.stage]);
#pragma unroll
      for (int i = 0; i < kSize / 2; i++) out[i] *= decay[i / 2 % 2];
      factor_a.round(scores);
    }

    // Only the last tile can reach beyond the sequence.
    mbarrier_wait(&v_full[place.stage], place.parity);
    const int32_t last = (end - 1) / kKeys * kKeys;
    if (last + kKeys > tile.length) {
      Keys::clear(v_tile(place.stage), tile.length - last);
      wait_for_cleared();
    }
    multiply_registers<Keys>(out, factor_a, v_tile(place.stage));
    float inverse[2];
#pragma unroll
    for (int half = 0; half < 2; half++) {
      float sum = softmax.sum[half];
      sum += __shfl_xor_sync(0xffffffffu, sum, 1);
      sum += __shfl_xor_sync(0xffffffffu, sum, 2);
      inverse[half] = 1.0f / sum;
      const int32_t at = query + 8 * half;
      if (lane % 4 == 0 && at < tile.length)
        lse[head * p.tokens + tile.begin + at] = softmax.maximum[half] * p.scale + logf(sum);
    }
    wgmma_wait<0>();
    pin(out);
    factor_a.pin();
    release(&v_empty[place.stage]);
    place.advance();

    // The results take the place of the consumer's own queries.
#pragma unroll
    for (int i = 0; i < kSize / 2; i += 8) {
      const uint32_t values[] = {round_to_bf16_pair(out[i] * inverse[0], out[i + 1] * inverse[0]),
                                 round_to_bf16_pair(out[i + 2] * inverse[1], out[i + 3] * inverse[1]),
                                 round_to_bf16_pair(out[i + 4] * inverse[0], out[i + 5] * inverse[0]),
                                 round_to_bf16_pair(out[i + 6] * inverse[1], out[i + 7] * inverse[1])};
      const int to_row = row + static_cast<int>(threadIdx.x) % kGroup / 32 * 16 + lane % 16;
      stmatrix(Queries::at(q_own, to_row, i / 4 + lane / 16), values);
    }
    fence_proxy_async();
    warpgroup_barrier(group);
    if (first + kGroupRows <= tile.length) {
      if (sends) {
#pragma unroll
        for (int box = 0; box < Queries::kBoxes; box++)
          tma_store(&maps.o, static_cast<int32_t>(tile.begin + first), head * kSize + box * kBoxColumns,
                    q_own + box * Queries::kBoxBytes + row * 128);
        tma_store_commit();
      }
    } else {
      Queries::store_rows(q_own, row, o, tile, first, head, p.heads);
      warpgroup_barrier(group);  // all have read when the stage is released
    }
    stored = own.stage;
  }
  turns.end();
  if (sends) tma_store_wait_read<0>();
}

template <int kSize>
void launch(Stream& stream, const Attention& p, const AttentionTensors& t, float* lse) {
  if (p.tokens == 0) return;
  const auto describe = [&](const void* data, int32_t heads, int rows) {
    return make_tensor_map(stream, data, p.tokens, int64_t{heads} * kSize, rows);
  };
  const Maps maps{describe(t.q, p.heads, kRows), describe(t.k, p.kv_heads, kKeys),
                  describe(t.v, p.kv_heads, kKeys), describe(t.o, p.heads, kGroupRows)};
  const int64_t items = p.max_tiles * p.heads;
  const int64_t blocks = items < stream.hardware.multiprocessors ? items : stream.hardware.multiprocessors;
  stream.launch(sm90_attention_persistent_kernel<kSize>, blocks, kThreads, Layout<kSize>::kShared, p, maps,
                static_cast<bf16*>(t.o), lse, columns_in_cache(p, p.heads, p.group, 4 * kSize),
                static_cast<unsigned>(items), stream.ticket);
}

}  // namespace

void attention_forward_sm90_persistent(Stream& stream, const Attention& problem,
                                       const AttentionTensors& tensors, float* lse) {
  if (problem.size == 64) return launch<64>(stream, problem, tensors, lse);
  launch<128>(stream, problem, tensors, lse);
}

}  // namespace steptrain::cuda
