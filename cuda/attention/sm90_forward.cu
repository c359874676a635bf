// Attention forward on Hopper, for heads of 64 and 128 elements, after FlashAttention-3 (Shah et al. 2024): a
// block takes 128 queries of one head, 64 for each of two consumers, and walks over tiles of 128 keys. Scores
// by wgmma from shared memory, an online softmax as in cuda/attention/forward_bf16.cu, and o += p·v by wgmma
// with p, rounded to bf16, in registers. A consumer starts the next tile's scores before the product of p and
// v, so that the softmax between them runs beside that product; and the consumers start their products in
// turns, so that one's softmax runs beside the other's. Keys of the next sequence are hidden; its values are
// overwritten with zeros, since 0 times what is not finite is not 0.
#include "cuda/attention/sm90_tiles.cuh"

namespace steptrain::cuda {
namespace {

using namespace hopper;

constexpr int kRows = kHopperRows;
constexpr int kKeys = 128;
constexpr int kScores = kKeys / 2;  // that a thread holds: of two rows, a quarter of the columns

struct Maps {
  CUtensorMap q, k, v;
};

template <int kSize>
struct Layout {
  static constexpr int kStages = kSize == 64 ? 4 : 2;
  using Queries = BoxTile<kRows, kSize>;
  using Keys = BoxTile<kKeys, kSize>;
  static constexpr int kShared = Queries::kBytes + 2 * kStages * Keys::kBytes + 1024;
};

/// The running softmax of a thread's two rows: the maximum of the scores as they are and the sum of the
/// weights.
struct Softmax {
  float maximum[2] = {kFloor, kFloor}, sum[2] = {0, 0};

  /// Scores become weights. What was summed before them must be multiplied by `decay`.
  __device__ void weigh(float (&scores)[kScores], float scale, float (&decay)[2]) {
#pragma unroll
    for (int half = 0; half < 2; half++) {
      float most = maximum[half];
#pragma unroll
      for (int i = 2 * half; i < kScores; i += 4) most = fmaxf(most, fmaxf(scores[i], scores[i + 1]));
      // A row lies in four lanes.
      most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 1));
      most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 2));
      const float shift = most * scale;
      decay[half] = exp2_approximate((maximum[half] - most) * scale);
      maximum[half] = most;
      float total = sum[half] * decay[half];
#pragma unroll
      for (int i = 2 * half; i < kScores; i += 4)
#pragma unroll
        for (int e = 0; e < 2; e++) {
          scores[i + e] = exp2_approximate(fmaf(scores[i + e], scale, -shift));
          total += scores[i + e];
        }
      sum[half] = total;
    }
  }
};

/// The two consumers' turns at starting products: 1, 2, 1, 2, … as often each. Whoever's turn it is has been
/// passed it by the other, but for the first; the last is not passed on.
struct Turns {
  int group, left;
  bool first;
  __device__ void take() {
    if (group == 2 || !first) wait_at_barrier(kConsumers + group);
    first = false;
  }
  __device__ void pass() {
    if (group == 1 || left > 1) arrive_at_barrier(kConsumers + 3 - group);
    left--;
  }
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
  if (!tile.there) return;
  if (threadIdx.x == 0) {
    barrier_init(&q_full, 1);
    for (int stage = 0; stage < kStages; stage++) {
      barrier_init(&k_full[stage], 1);
      barrier_init(&v_full[stage], 1);
      barrier_init(&k_empty[stage], kConsumerWarps);
      barrier_init(&v_empty[stage], kConsumerWarps);
    }
    publish_barriers();
  }
  __syncthreads();

  const int32_t begin = first_key(p, tile.start) / kKeys * kKeys, end = end_key(p, tile, tile.start, kRows);
  const int group = static_cast<int>(threadIdx.x) / kGroup, lane = static_cast<int>(threadIdx.x) % 32;
  RingPlace<kStages> place;

  if (group == 0) {
    shrink_registers<24>();
    if (threadIdx.x != 0) return;
    const auto fetch = [&](char* to, const CUtensorMap* from, int32_t key, Barrier* full) {
      barrier_expect(full, Keys::kBytes);
      Keys::fetch(to, from, tile.begin + key, kv_head, full);
    };
    barrier_expect(&q_full, Queries::kBytes);
    Queries::fetch(q_tile, &maps.q, tile.begin + tile.start, head, &q_full);
    for (int32_t key = begin; key < end; key += kKeys, place.advance()) {
      // The first time round stages are empty: the phase before the first counts as ended.
      barrier_wait(&k_empty[place.stage], place.parity ^ 1);
      fetch(k_tile(place.stage), &maps.k, key, &k_full[place.stage]);
      barrier_wait(&v_empty[place.stage], place.parity ^ 1);
      fetch(v_tile(place.stage), &maps.v, key, &v_full[place.stage]);
    }
    return;
  }

  grow_registers<240>();
  const int row = (group - 1) * kGroupRows;
  const int32_t first = tile.start + row;  // of the consumer's queries
  const int32_t query = first + static_cast<int>(threadIdx.x) % kGroup / 32 * 16 + lane / 4;
  const Sight sight[2] = {sight_of(p, tile, query), sight_of(p, tile, query + 8)};
  const float scale = p.scale * kLog2e;
  const auto release = [&](Barrier* barrier) {
    if (lane == 0) barrier_arrive(barrier);
  };
  const auto hide = [&](float(&scores)[kScores], int32_t key) {
    if (sees_all(p, tile, first, kGroupRows, key, key + kKeys)) return;
#pragma unroll
    for (int i = 0; i < kScores; i++) {
      if (!sees(p, tile, sight[i / 2 % 2], key + i / 4 * 8 + lane % 4 * 2 + i % 2)) scores[i] = kMasked;
    }
  };
  float out[kSize / 2] = {};
  Softmax softmax;
  Held<kScores> held;
  Turns turns{group, (end - begin + kKeys - 1) / kKeys, true};
  float decay[2];

  barrier_wait(&q_full, 0);
  barrier_wait(&k_full[0], 0);
  {
    float scores[kScores];
    turns.take();
    score<Queries, Keys, kSize>(scores, q_tile, row, k_tile(0));
    turns.pass();
    wait_for_groups<0>();
    pin(scores);
    release(&k_empty[0]);
    hide(scores, begin);
    softmax.weigh(scores, scale, decay);  // nothing was summed before
    held.round(scores);
  }
  for (int32_t key = begin + kKeys; key < end; key += kKeys) {
    const RingPlace<kStages> before = place;  // of the values that `held` weighs
    place.advance();
    float scores[kScores];
    barrier_wait(&k_full[place.stage], place.parity);
    barrier_wait(&v_full[before.stage], before.parity);
    turns.take();
    score<Queries, Keys, kSize>(scores, q_tile, row, k_tile(place.stage));
    weigh<Keys>(out, held, v_tile(before.stage));
    turns.pass();
    wait_for_groups<1>();  // for the scores
    pin(scores);
    release(&k_empty[place.stage]);
    hide(scores, key);
    softmax.weigh(scores, scale, decay);
    wait_for_groups<0>();
    pin(out);
    held.pin();
    release(&v_empty[before.stage]);
#pragma unroll
    for (int i = 0; i < kSize / 2; i++) out[i] *= decay[i / 2 % 2];
    held.round(scores);
  }

  // Only the last tile can reach beyond the sequence.
  barrier_wait(&v_full[place.stage], place.parity);
  const int32_t last = (end - 1) / kKeys * kKeys;
  if (last + kKeys > tile.length) {
    Keys::clear(v_tile(place.stage), tile.length - last);
    publish_cleared();
  }
  weigh<Keys>(out, held, v_tile(place.stage));
  wait_for_groups<0>();
  pin(out);
  held.pin();

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
    return describe_matrix(stream, data, p.tokens, int64_t{heads} * kSize, kRows);
  };
  const Maps maps{describe(t.q, p.heads), describe(t.k, p.kv_heads), describe(t.v, p.kv_heads)};
  stream.launch(sm90_attention_kernel<kSize>, p.most_tiles * p.heads, kThreads, Layout<kSize>::kShared, p,
                maps, static_cast<bf16*>(t.o), lse);
}

}  // namespace

void attention_forward_sm90(Stream& stream, const Attention& problem, const AttentionTensors& tensors,
                            float* lse) {
  if (problem.size == 64) return launch<64>(stream, problem, tensors, lse);
  launch<128>(stream, problem, tensors, lse);
}

}  // namespace steptrain::cuda
