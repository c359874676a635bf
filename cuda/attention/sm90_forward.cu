// Attention forward on Hopper, for heads of 64 and 128 elements, after FlashAttention-3 (Shah et al. 2024). A
// block takes 128 queries of one head, 64 for each of two consumers, and walks over tiles of 128 keys. wgmma
// computes scores from shared memory and, after an online softmax as in cuda/attention/forward_bf16.cu, o +=
// p·v with p, rounded to bf16, from registers. A consumer starts the scores of the next tile before the
// product p·v, so that its softmax overlaps with that product. The two consumers take turns at starting
// products, so that the softmax of one overlaps with the products of the other. Keys of the next sequence are
// masked; its values are overwritten with zeros, because 0 times NaN or infinity is not 0. A tile of a
// consumer is 2·64·128·D multiply-adds, at 2,048 a clock of an H100's multiprocessor 512 clocks for D = 64
// and 1,024 for D = 128, and 64·128 exponentials, 512 clocks at 16 a clock: as long as the products, or half
// as long, which is why the two must overlap.
#include "cuda/attention/sm90_softmax.cuh"
#include "cuda/attention/sm90_tiles.cuh"

namespace steptrain::cuda {
namespace {

using namespace hopper;

constexpr int kRows = kHopperRows;

struct Maps {
  CUtensorMap q, k, v;
};

template <int kSize>
struct Layout {
  static constexpr int kStages = kSize == 64 ? 4 : 2;
  using Queries = BoxTile<kRows, kSize>;
  using Keys = BoxTile<kKeys, kSize>;
  static constexpr int kShared = Queries::kBytes + 2 * kStages * Keys::kBytes + 1024;
  static_assert(fits_in_shared(kShared));
};

template <int kSize>
__global__ void __launch_bounds__(kThreads, 1)
    sm90_attention_kernel(const __grid_constant__ Attention p, const __grid_constant__ Maps maps, bf16* o,
                          float* lse) {
  using L = Layout<kSize>;
  using Queries = typename L::Queries;
  using Keys = typename L::Keys;
  constexpr int kStages = L::kStages;
  __shared__ Barrier q_full, k_full[kStages], k_empty[kStages], v_full[kStages], v_empty[kStages];
  char* const q_tile = aligned_shared();
  const auto k_tile = [&](int stage) { return q_tile + Queries::kBytes + stage * Keys::kBytes; };
  const auto v_tile = [&](int stage) { return k_tile(kStages + stage); };

  const int32_t head = static_cast<int32_t>(blockIdx.x % static_cast<unsigned>(p.heads)),
                kv_head = head / p.group;
  const AttentionTile tile = find_tile(p, blockIdx.x / static_cast<unsigned>(p.heads), kRows);
  if (!tile.exists) return;
  if (threadIdx.x == 0) {
    mbarrier_init(&q_full, 1);
    for (int stage = 0; stage < kStages; stage++) {
      mbarrier_init(&k_full[stage], 1);
      mbarrier_init(&v_full[stage], 1);
      mbarrier_init(&k_empty[stage], kConsumerWarps);
      mbarrier_init(&v_empty[stage], kConsumerWarps);
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
    const auto fetch = [&](char* to, const CUtensorMap* from, int32_t key, Barrier* full) {
      mbarrier_expect_tx(full, Keys::kBytes);
      Keys::fetch(to, from, tile.begin + key, kv_head, full);
    };
    mbarrier_expect_tx(&q_full, Queries::kBytes);
    Queries::fetch(q_tile, &maps.q, tile.begin + tile.start, head, &q_full);
    for (int32_t key = begin; key < end; key += kKeys, place.advance()) {
      // In the first round all stages are empty: the phase before the first counts as ended.
      mbarrier_wait(&k_empty[place.stage], place.parity ^ 1);
      fetch(k_tile(place.stage), &maps.k, key, &k_full[place.stage]);
      mbarrier_wait(&v_empty[place.stage], place.parity ^ 1);
      fetch(v_tile(place.stage), &maps.v, key, &v_full[place.stage]);
    }
    return;
  }

  grow_registers<240>();
  const int row = (group - 1) * kGroupRows;
  const int32_t first = tile.start + row;  // of the consumer's queries
  const int32_t query = first + own_row();
  const VisibleRange visible[2] = {visible_keys(p, tile, query), visible_keys(p, tile, query + 8)};
  const float scale = p.scale * kLog2e;
  const auto release = [&](Barrier* barrier) {
    if (lane == 0) mbarrier_arrive(barrier);
  };
  const auto mask = [&](float(&scores)[kScores], int32_t key) {
    if (all_visible(p, tile, first, kGroupRows, key, key + kKeys)) return;
#pragma unroll
    for (int i = 0; i < kScores; i++) {
      if (!key_visible(p, tile, visible[i / 2 % 2], key + fragment_column(lane, i))) scores[i] = kMasked;
    }
  };
  float out[kSize / 2] = {};
  Softmax softmax;
  RegisterFactor<kScores> factor_a;
  Turns turns{group, (end - begin + kKeys - 1) / kKeys, true};
  float decay[2];

  mbarrier_wait(&q_full, 0);
  mbarrier_wait(&k_full[0], 0);
  {
    float scores[kScores];
    turns.take();
    multiply_tiles<Queries, Keys, kSize>(scores, q_tile, row, k_tile(0));
    turns.pass();
    wgmma_wait<0>();
    pin(scores);
    release(&k_empty[0]);
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
    multiply_tiles<Queries, Keys, kSize>(scores, q_tile, row, k_tile(place.stage));
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
  wgmma_wait<0>();
  pin(out);
  factor_a.pin();

  float inverse[2];
#pragma unroll
  for (int half = 0; half < 2; half++) {
    float total = softmax.sum[half];
    total += __shfl_xor_sync(0xffffffffu, total, 1);
    total += __shfl_xor_sync(0xffffffffu, total, 2);
    inverse[half] = 1.0f / total;
    const int32_t own = query + 8 * half;
    if (lane % 4 == 0 && own < tile.length)
      lse[head * p.tokens + tile.begin + own] = softmax.maximum[half] * p.scale + logf(total);
  }
  Queries::write(q_tile, row, out, inverse, o, tile, first, head, p.heads);
}

template <int kSize>
void launch(Stream& stream, const Attention& p, const AttentionTensors& t, float* lse) {
  if (p.tokens == 0) return;
  const auto describe = [&](const void* data, int32_t heads) {
    return make_tensor_map(stream, data, p.tokens, int64_t{heads} * kSize, kRows);
  };
  const Maps maps{describe(t.q, p.heads), describe(t.k, p.kv_heads), describe(t.v, p.kv_heads)};
  stream.launch(sm90_attention_kernel<kSize>, p.max_tiles * p.heads, kThreads, Layout<kSize>::kShared, p,
                maps, static_cast<bf16*>(t.o), lse);
}

}  // namespace

void attention_forward_sm90(Stream& stream, const Attention& problem, const AttentionTensors& tensors,
                            float* lse) {
  if (problem.size == 64) return launch<64>(stream, problem, tensors, lse);
  launch<128>(stream, problem, tensors, lse);
}

}  // namespace steptrain::cuda
