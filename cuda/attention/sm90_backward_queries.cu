// dq = scale·ds·k on Hopper (see problem.h), for heads of 128 elements. A block takes 128 queries of
// one head and walks over their keys. wgmma computes s = q·kᵀ and dp = do·vᵀ from shared memory, then dq +=
// ds·k with ds, rounded to bf16, from registers; that product overlaps with those of the next tile. Keys and
// values of the next sequence are overwritten with zeros, because 0 times NaN or infinity is not 0. A tile of a
// consumer is 3·64·64·128 multiply-adds, 768 clocks at 2,048 a clock of an H100's multiprocessor, and 64·64
// exponentials, 256 clocks at 16 a clock. Shared memory holds q, do and four stages of k and v, 192 KiB.
#include "cuda/attention/sm90_tiles.cuh"

namespace steptrain::cuda {
namespace {

using namespace hopper;

constexpr int kRows = kHopperRows;
constexpr int kSize = 128;

struct Maps {
  CUtensorMap q, k, v, dout;
};

struct Layout {
  static constexpr int kKeys = 64;
  static constexpr int kStages = 4;
  using Own = BoxTile<kRows, kSize>;
  using Other = BoxTile<kKeys, kSize>;
  static constexpr int kShared = 2 * Own::kBytes + 2 * kStages * Other::kBytes + 1024;
  static_assert(fits_in_shared(kShared));
};

__global__ void __launch_bounds__(kThreads, 1)
    sm90_attention_queries_kernel(const __grid_constant__ Attention p, const __grid_constant__ Maps maps,
                                  const __grid_constant__ AttentionTensors t, const Columns heads) {
  using L = Layout;
  using Own = L::Own;
  using Other = L::Other;
  constexpr int kKeys = L::kKeys, kStages = L::kStages;
  __shared__ Barrier own_full, full[kStages], empty[kStages];
  char* const q_tile = aligned_shared();
  char* const do_tile = q_tile + Own::kBytes;
  const auto k_tile = [&](int stage) { return do_tile + Own::kBytes + 2 * stage * Other::kBytes; };
  const auto v_tile = [&](int stage) { return k_tile(stage) + Other::kBytes; };

  const auto [tile, head] = find_tile(p, heads, blockIdx.x, kRows);
  const int32_t kv_head = head / p.group;
  if (!tile.exists) return;
  if (threadIdx.x == 0) {
    mbarrier_init(&own_full, 1);
    for (int stage = 0; stage < kStages; stage++) {
      mbarrier_init(&full[stage], 1);
      mbarrier_init(&empty[stage], kConsumerWarps);
    }
    fence_barrier_init();
  }
  __syncthreads();

  const int32_t begin = first_key(p, tile.start) / kKeys * kKeys, end = end_key(p, tile, tile.start, kRows);
  const int group = static_cast<int>(threadIdx.x) / kGroup, lane = static_cast<int>(threadIdx.x) % 32;
  RingPlace<kStages> place;

  if (group == 0) {
    shrink_registers<24>();
    if (threadIdx.x != 0) return;
    mbarrier_expect_tx(&own_full, 2 * Own::kBytes);
    Own::fetch(q_tile, &maps.q, tile.begin + tile.start, head, &own_full);
    Own::fetch(do_tile, &maps.dout, tile.begin + tile.start, head, &own_full);
    for (int32_t key = begin; key < end; key += kKeys, place.advance()) {
      // In the first round all stages are empty: the phase before the first counts as ended.
      mbarrier_wait(&empty[place.stage], place.parity ^ 1);
      Barrier* const barrier = &full[place.stage];
      mbarrier_expect_tx(barrier, 2 * Other::kBytes);
      Other::fetch(k_tile(place.stage), &maps.k, tile.begin + key, kv_head, barrier);
      Other::fetch(v_tile(place.stage), &maps.v, tile.begin + key, kv_head, barrier);
    }
    return;
  }

  grow_registers<240>();
  const int row = (group - 1) * kGroupRows;
  const int32_t first = tile.start + row;  // of the consumer's queries
  VisibleRange visible[2];
  float lse[2], delta[2];
#pragma unroll
  for (int half = 0; half < 2; half++) {
    const int32_t query = first + own_row() + 8 * half;
    const bool inside = query < tile.length;
    const int64_t at = head * p.tokens + tile.begin + query;
    visible[half] = visible_keys(p, tile, query);
    lse[half] = inside ? t.lse[at] * kLog2e : kPaddedLse;
    delta[half] = inside ? t.delta[at] : 0.0f;
  }
  const float scale = p.scale * kLog2e;
  float dq[kSize / 2] = {};
  RegisterFactor<kKeys / 2> factor_a;
  int before = -1;  // the stage whose keys the product of dq reads
  const auto release = [&] {
    if (lane == 0 && before >= 0) mbarrier_arrive(&empty[before]);
  };
  mbarrier_wait(&own_full, 0);
  for (int32_t key = begin; key < end; key += kKeys, place.advance()) {
    const int stage = place.stage;
    mbarrier_wait(&full[stage], place.parity);
    if (key + kKeys > tile.length) {
      Other::clear(k_tile(stage), tile.length - key);
      Other::clear(v_tile(stage), tile.length - key);
      wait_for_cleared();
    }
    float weights[kKeys / 2], slopes[kKeys / 2];
    multiply_tiles<Own, Other, kSize>(weights, q_tile, row, k_tile(stage));
    multiply_tiles<Own, Other, kSize>(slopes, do_tile, row, v_tile(stage));
    wgmma_wait<1>();  // for the scores, and for dq before them
    pin(weights);
    pin(dq);
    factor_a.pin();
    release();
    before = stage;

    const bool all = all_visible(p, tile, first, kGroupRows, key, key + kKeys);
#pragma unroll
    for (int i = 0; i < kKeys / 2; i++) {
      const int half = i / 2 % 2;
      weights[i] = exp2_approximate(fmaf(weights[i], scale, -lse[half]));
    }
    if (!all)
#pragma unroll
      for (int i = 0; i < kKeys / 2; i++) {
        if (!key_visible(p, tile, visible[i / 2 % 2], key + fragment_column(lane, i))) weights[i] = 0;
      }
    wgmma_wait<0>();
    pin(slopes);
#pragma unroll
    for (int i = 0; i < kKeys / 2; i++) slopes[i] = (slopes[i] - delta[i / 2 % 2]) * weights[i];
    factor_a.round(slopes);
    multiply_registers<Other>(dq, factor_a, k_tile(stage));
  }
  wgmma_wait<0>();
  pin(dq);
  factor_a.pin();
  Own::write(q_tile, row, dq, {p.scale, p.scale}, static_cast<bf16*>(t.dq), tile, first, head, p.heads);
}

}  // namespace

void attention_queries_sm90(Stream& stream, const Attention& p, const AttentionTensors& t,
                            const Columns& heads) {
  if (p.tokens == 0) return;
  using L = Layout;
  const auto describe = [&](const void* data, int32_t heads, int rows) {
    return make_tensor_map(stream, data, p.tokens, int64_t{heads} * kSize, rows);
  };
  const Maps maps{describe(t.q, p.heads, kRows), describe(t.k, p.kv_heads, L::kKeys),
                  describe(t.v, p.kv_heads, L::kKeys), describe(t.dout, p.heads, kRows)};
  stream.launch(sm90_attention_queries_kernel, p.max_tiles * p.heads, kThreads, L::kShared, p, maps, t,
                heads);
}

}  // namespace steptrain::cuda
