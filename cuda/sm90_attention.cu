// Attention forward on Hopper, for heads of 64 and 128 elements: a block takes 128 queries of one head. One
// thread of the first warpgroup copies tiles of 128 keys and values by TMA, two of each in turn; the other
// two warpgroups take 64 queries each: scores by wgmma from shared memory, an online softmax in log2 units,
// and o += p·v by wgmma with p, rounded to bf16, in registers. One group's softmax runs while the other
// multiplies. The tensors are matrices [T, heads·D] to TMA, so a tile at a sequence's end holds tokens of the
// next one: as keys they are hidden, as values overwritten with zeros, since 0 times what is not finite is
// not 0.
#include "cuda/attention.h"
#include "cuda/sm90_instructions.cuh"
#include "cuda/storage.cuh"
#include "cuda/tensor_map.h"

namespace steptrain::cuda {
namespace {

constexpr int kRows = kHopperRows;
constexpr int kKeys = 128;
constexpr int kStages = 2;
constexpr int kGroup = 128;  // threads of a warpgroup
constexpr int kConsumers = 2;
constexpr int kThreads = kGroup * (1 + kConsumers);
constexpr int kBoxBytes = kKeys * kBoxColumns * 2;  // of 128 tokens, 64 elements of the head
constexpr int kStep = 16;                           // depth of one wgmma
static_assert(kRows == kKeys);

struct Maps {
  CUtensorMap q, k, v;
};

template <int kSize>
struct Layout {
  static constexpr int kBoxes = kSize / kBoxColumns;
  static constexpr int kTileBytes = kBoxes * kBoxBytes;
  static constexpr int kShared = (1 + 2 * kStages) * kTileBytes + 1024;  // and what it takes to align them
};

template <int kSize>
__global__ void __launch_bounds__(kThreads, 1)
    sm90_attention_kernel(const __grid_constant__ Attention p, const __grid_constant__ Maps maps, bf16* o,
                          float* lse) {
  using L = Layout<kSize>;
  __shared__ Barrier q_full, k_full[kStages], k_empty[kStages], v_full[kStages], v_empty[kStages];
  extern __shared__ uint4 shared[];
  char* const q_tile = reinterpret_cast<char*>((reinterpret_cast<uintptr_t>(shared) + 1023) / 1024 * 1024);
  const auto k_tile = [&](int stage) { return q_tile + (1 + stage) * L::kTileBytes; };
  const auto v_tile = [&](int stage) { return q_tile + (1 + kStages + stage) * L::kTileBytes; };

  const int32_t head = static_cast<int32_t>(blockIdx.x % static_cast<unsigned>(p.heads)),
                kv_head = head / p.group;
  const AttentionTile tile = find_tile(p, blockIdx.x / static_cast<unsigned>(p.heads), kRows);
  if (!tile.there) return;
  if (threadIdx.x == 0) {
    barrier_init(&q_full, 1);
    for (int stage = 0; stage < kStages; stage++) {
      barrier_init(&k_full[stage], 1);
      barrier_init(&v_full[stage], 1);
      barrier_init(&k_empty[stage], kConsumers * kGroup / 32);
      barrier_init(&v_empty[stage], kConsumers * kGroup / 32);
    }
    publish_barriers();
  }
  __syncthreads();

  const int32_t begin = first_key(p, tile.start) / kKeys * kKeys, end = end_key(p, tile, tile.start, kRows);
  const int group = static_cast<int>(threadIdx.x) / kGroup, lane = static_cast<int>(threadIdx.x) % 32;
  int stage = 0;
  uint32_t parity = 0;
  const auto advance = [&] {
    if (++stage < kStages) return;
    stage = 0;
    parity ^= 1;
  };

  if (group == 0) {
    shrink_registers<24>();
    if (threadIdx.x != 0) return;
    const auto fetch = [&](char* to, const CUtensorMap* from, int32_t token, int32_t of_head, Barrier* full) {
      barrier_expect(full, L::kTileBytes);
      for (int i = 0; i < L::kBoxes; i++)
        copy_box(to + i * kBoxBytes, from, static_cast<int32_t>(tile.begin) + token,
                 of_head * kSize + i * kBoxColumns, full);
    };
    fetch(q_tile, &maps.q, tile.start, head, &q_full);
    for (int32_t key = begin; key < end; key += kKeys, advance()) {
      // The first time round stages are empty: the phase before the first counts as ended.
      barrier_wait(&k_empty[stage], parity ^ 1);
      fetch(k_tile(stage), &maps.k, key, kv_head, &k_full[stage]);
      barrier_wait(&v_empty[stage], parity ^ 1);
      fetch(v_tile(stage), &maps.v, key, kv_head, &v_full[stage]);
    }
    return;
  }

  grow_registers<240>();
  const int in_group = static_cast<int>(threadIdx.x) % kGroup;
  const int32_t first = tile.start + (group - 1) * 64;  // of the group's queries
  const int32_t query = first + in_group / 32 * 16 + lane / 4;
  const Sight sight[2] = {sight_of(p, tile, query), sight_of(p, tile, query + 8)};
  const auto release = [&](Barrier* barrier) {
    if (lane == 0) barrier_arrive(barrier);
  };
  float out[kSize / 2] = {};
  float maximum[2] = {kFloor, kFloor}, sum[2] = {0, 0};
  const float scale = p.scale * kLog2e;
  barrier_wait(&q_full, 0);
  for (int32_t key = begin; key < end; key += kKeys, advance()) {
    float scores[kKeys / 2] = {};
    barrier_wait(&k_full[stage], parity);
    open_group();
#pragma unroll
    for (int k = 0; k < kSize; k += kStep) {
      const int box = k / kBoxColumns * kBoxBytes, chunk = k % kBoxColumns * 2 / 16;
      multiply_group<false, false>(scores, box_descriptor(q_tile + box + (group - 1) * 64 * 128, 16) + chunk,
                                   box_descriptor(k_tile(stage) + box, 16) + chunk);
    }
    close_group();
    wait_for_groups<0>();
    pin(scores);
    release(&k_empty[stage]);

    const bool all = sees_all(p, tile, first, 64, key, key + kKeys);
#pragma unroll
    for (int half = 0; half < 2; half++) {
      float most = maximum[half];
#pragma unroll
      for (int j = 0; j < kKeys / 8; j++)
#pragma unroll
        for (int e = 0; e < 2; e++) {
          float& score = scores[4 * j + 2 * half + e];
          score *= scale;
          if (!all && !sees(p, tile, sight[half], key + 8 * j + lane % 4 * 2 + e)) score = kMasked;
          most = fmaxf(most, score);
        }
      // A row lies in four lanes.
      most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 1));
      most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 2));
      const float decay = exp2f(maximum[half] - most);
      maximum[half] = most;
      float total = sum[half] * decay;
#pragma unroll
      for (int j = 0; j < kKeys / 8; j++)
#pragma unroll
        for (int e = 0; e < 2; e++) {
          float& score = scores[4 * j + 2 * half + e];
          score = exp2f(score - most);
          total += score;
        }
      sum[half] = total;
#pragma unroll
      for (int j = 0; j < kSize / 8; j++) {
        out[4 * j + 2 * half] *= decay;
        out[4 * j + 2 * half + 1] *= decay;
      }
    }
    uint32_t weights[kKeys / kStep][4];
#pragma unroll
    for (int k = 0; k < kKeys / kStep; k++)
#pragma unroll
      for (int i = 0; i < 4; i++)
        weights[k][i] = round_to_bf16_pair(scores[8 * k + 2 * i], scores[8 * k + 2 * i + 1]);

    barrier_wait(&v_full[stage], parity);
    if (key + kKeys > tile.length) {
      // Both groups write the same zeros.
      for (int i = in_group; i < (key + kKeys - tile.length) * L::kBoxes * 8; i += kGroup) {
        const int row = tile.length - key + i / (L::kBoxes * 8), chunk = i % (L::kBoxes * 8);
        *reinterpret_cast<uint4*>(v_tile(stage) + chunk / 8 * kBoxBytes + row * 128 + chunk % 8 * 16) =
            make_uint4(0, 0, 0, 0);
      }
      publish_writes();
      group_barrier(group);
    }
    pin(out);
    open_group();
#pragma unroll
    for (int k = 0; k < kKeys / kStep; k++)
      multiply_held(out, weights[k], box_descriptor(v_tile(stage), kBoxBytes) + k * kStep * 128 / 16);
    close_group();
    wait_for_groups<0>();
    pin(out);
    release(&v_empty[stage]);
  }

#pragma unroll
  for (int half = 0; half < 2; half++) {
    float total = sum[half];
    total += __shfl_xor_sync(0xffffffffu, total, 1);
    total += __shfl_xor_sync(0xffffffffu, total, 2);
    const int32_t row = query + 8 * half;
    if (row >= tile.length) continue;
    if (lane % 4 == 0) lse[head * p.tokens + tile.begin + row] = maximum[half] * kLn2 + logf(total);
    const float inverse = 1.0f / total;
    bf16* const to = o + ((tile.begin + row) * p.heads + head) * kSize + lane % 4 * 2;
#pragma unroll
    for (int j = 0; j < kSize / 8; j++)
      *reinterpret_cast<uint32_t*>(to + 8 * j) =
          round_to_bf16_pair(out[4 * j + 2 * half] * inverse, out[4 * j + 2 * half + 1] * inverse);
  }
}

template <int kSize>
void launch(Stream& stream, const Attention& p, const AttentionTensors& t, float* lse) {
  if (p.tokens == 0) return;
  const auto describe = [&](const void* data, int32_t heads) {
    return describe_matrix(data, p.tokens, int64_t{heads} * kSize, kRows);
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
