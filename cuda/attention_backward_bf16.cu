// Attention backward on tensor cores, deterministic without atomics or turns: one kernel per output side,
// each of which recomputes the probabilities from lse.
//   p = exp(scale·q·k - lse)    ds = scale·p·(do·v - delta)
//   queries  dq = ds·k              a block takes 64 queries of one head and walks over its keys
//   keys     dk = dsᵀ·q, dv = pᵀ·do  a block takes 64 keys of one KV head and walks over the queries of every
//            head of the group, in order; above D = 128 one launch makes dv and another dk
// Four warps take 16 rows each, four of queries or of keys; the other side comes through shared memory, two
// tiles in turn where there is room. Sums in f32, operands (p and ds among them) in bf16.
#include "cuda/attention_tile.cuh"

namespace steptrain::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kRows = kBackwardRows;

/// kOther: rows of the other side per tile.
template <int kSize, int kOtherRows>
struct Backward {
  static constexpr int kOther = kOtherRows;
  static constexpr int kStages = kSize <= 128 ? 2 : 1;
  using Own = HeadTile<kRows, kSize>;
  using Other = HeadTile<kOther, kSize>;
  static constexpr int kTileBytes = 2 * Own::kBytes + 2 * kStages * Other::kBytes;
  static constexpr int kShared = kTileBytes + 2 * kStages * kOther * 4;  // and the rows' lse and delta
};
template <int kSize>
using ForQueries = Backward<kSize, kSize <= 128 ? 64 : 32>;
/// Fewer rows where two outputs already take most registers.
template <int kSize>
using ForKeys = Backward<kSize, kSize <= 64 ? 64 : 32>;

/// Walks over tiles first, first + step … below end: fetch(at, stage), then body(at, stage) with the next
/// fetch under way. The order of work is the same for one stage and two.
template <int kStages, typename Fetch, typename Body>
__device__ void pipeline(int32_t first, int32_t end, int32_t step, Fetch fetch, Body body) {
  if (kStages == 2 && first < end) fetch(first, 0);
  commit_copies();
  int stage = 0;
  for (int32_t at = first; at < end; at += step) {
    if constexpr (kStages == 2) {
      wait_for_copies<0>();
      __syncthreads();  // this tile has arrived, and all are done with the one before it
      if (at + step < end) fetch(at + step, stage ^ 1);
      commit_copies();
      body(at, stage);
      stage ^= 1;
    } else {
      __syncthreads();
      fetch(at, 0);
      commit_copies();
      wait_for_copies<0>();
      __syncthreads();
      body(at, 0);
    }
  }
  __syncthreads();
}

template <int kSize>
__global__ void __launch_bounds__(kThreads)
    attention_queries_kernel(const __grid_constant__ Attention p,
                             const __grid_constant__ AttentionTensors t) {
  using B = ForQueries<kSize>;
  using Own = typename B::Own;
  using Other = typename B::Other;
  constexpr int kKeys = B::kOther;
  extern __shared__ uint4 shared[];
  char* const q_tile = reinterpret_cast<char*>(shared);
  char* const do_tile = q_tile + Own::kBytes;
  const auto k_tile = [&](int stage) { return do_tile + Own::kBytes + 2 * stage * Other::kBytes; };
  const auto v_tile = [&](int stage) { return k_tile(stage) + Other::kBytes; };

  const int32_t head = static_cast<int32_t>(blockIdx.x % static_cast<unsigned>(p.heads)),
                kv_head = head / p.group;
  const AttentionTile tile = find_tile(p, blockIdx.x / static_cast<unsigned>(p.heads), kRows);
  if (!tile.there) return;
  const int lane = static_cast<int>(threadIdx.x) % 32, warp_row = static_cast<int>(threadIdx.x) / 32 * 16;

  Own::template copy<kThreads>(q_tile, static_cast<const bf16*>(t.q), tile, tile.start, head, p.heads,
                               p.size);
  Own::template copy<kThreads>(do_tile, static_cast<const bf16*>(t.dout), tile, tile.start, head, p.heads,
                               p.size);
  Sight sight[2];
  float lse[2], delta[2];
#pragma unroll
  for (int half = 0; half < 2; half++) {
    const int32_t query = tile.start + warp_row + lane / 4 + 8 * half;
    const bool there = query < tile.length;
    const int64_t at = head * p.tokens + tile.begin + query;
    sight[half] = sight_of(p, tile, query);
    lse[half] = there ? t.lse[at] * kLog2e : kUnseen;
    delta[half] = there ? t.delta[at] : 0.0f;
  }
  const float scale = p.scale * kLog2e;
  float dq[kSize / 8][4] = {};
  pipeline<B::kStages>(
      first_key(p, tile.start) / kKeys * kKeys, end_key(p, tile, tile.start, kRows), kKeys,
      [&](int32_t key, int stage) {
        Other::template copy<kThreads>(k_tile(stage), static_cast<const bf16*>(t.k), tile, key, kv_head,
                                       p.kv_heads, p.size);
        Other::template copy<kThreads>(v_tile(stage), static_cast<const bf16*>(t.v), tile, key, kv_head,
                                       p.kv_heads, p.size);
      },
      [&](int32_t key, int stage) {
        float weights[kKeys / 8][4], slopes[kKeys / 8][4];
        multiply_heads<Own, Other, kKeys, kSize>(weights, q_tile, warp_row, k_tile(stage), lane);
        multiply_heads<Own, Other, kKeys, kSize>(slopes, do_tile, warp_row, v_tile(stage), lane);
        const bool all = sees_all(p, tile, tile.start, kRows, key, key + kKeys);
#pragma unroll
        for (int j = 0; j < kKeys / 8; j++)
#pragma unroll
          for (int i = 0; i < 4; i++) {
            const int half = i / 2;
            float weight = exp2f(fmaf(weights[j][i], scale, -lse[half]));
            if (!all && !sees(p, tile, sight[half], key + 8 * j + lane % 4 * 2 + i % 2)) weight = 0;
            weights[j][i] = (slopes[j][i] - delta[half]) * (weight * p.scale);
          }
        multiply_rows<Other, kKeys, kSize>(dq, weights, k_tile(stage), lane);
      });

#pragma unroll
  for (int j = 0; j < kSize / 8; j++) Own::put(q_tile, warp_row, 8 * j, dq[j], lane);
  __syncthreads();
  Own::template write<kThreads>(q_tile, static_cast<bf16*>(t.dq), tile, tile.start, head, p.heads, p.size);
}

template <int kSize, bool kMakesKeys, bool kMakesValues>
__global__ void __launch_bounds__(kThreads)
    attention_keys_kernel(const __grid_constant__ Attention p, const __grid_constant__ AttentionTensors t) {
  using B = ForKeys<kSize>;
  using Own = typename B::Own;
  using Other = typename B::Other;
  constexpr int kQueries = B::kOther;
  extern __shared__ uint4 shared[];
  char* const k_tile = reinterpret_cast<char*>(shared);
  char* const v_tile = k_tile + Own::kBytes;
  const auto q_tile = [&](int stage) { return v_tile + Own::kBytes + 2 * stage * Other::kBytes; };
  const auto do_tile = [&](int stage) { return q_tile(stage) + Other::kBytes; };
  const auto statistics = [&](int stage) {
    return reinterpret_cast<float*>(k_tile + B::kTileBytes) + 2 * stage * kQueries;
  };

  const unsigned kv_heads = static_cast<unsigned>(p.kv_heads);
  const int32_t kv_head = static_cast<int32_t>(blockIdx.x % kv_heads);
  const AttentionTile tile = find_tile(p, blockIdx.x / kv_heads, kRows);
  if (!tile.there) return;
  const int lane = static_cast<int>(threadIdx.x) % 32, warp_row = static_cast<int>(threadIdx.x) / 32 * 16;
  const int32_t last = tile.start + kRows < tile.length ? tile.start + kRows : tile.length;  // past the keys
  const int32_t begin = first_query(p, tile.start) / kQueries * kQueries,
                end = end_query(p, tile, tile.start, last - tile.start);

  Own::template copy<kThreads>(k_tile, static_cast<const bf16*>(t.k), tile, tile.start, kv_head, p.kv_heads,
                               p.size);
  Own::template copy<kThreads>(v_tile, static_cast<const bf16*>(t.v), tile, tile.start, kv_head, p.kv_heads,
                               p.size);
  const float scale = p.scale * kLog2e;
  float dk[kMakesKeys ? kSize / 8 : 1][4] = {}, dv[kMakesValues ? kSize / 8 : 1][4] = {};
  for (int32_t head = kv_head * p.group; head < (kv_head + 1) * p.group; head++) {
    pipeline<B::kStages>(
        begin, end, kQueries,
        [&](int32_t query, int stage) {
          Other::template copy<kThreads>(q_tile(stage), static_cast<const bf16*>(t.q), tile, query, head,
                                         p.heads, p.size);
          Other::template copy<kThreads>(do_tile(stage), static_cast<const bf16*>(t.dout), tile, query, head,
                                         p.heads, p.size);
          const int row = static_cast<int>(threadIdx.x);
          if (row < kQueries) {
            const bool there = query + row < tile.length;
            const int64_t at = head * p.tokens + tile.begin + query + row;
            statistics(stage)[row] = there ? t.lse[at] * kLog2e : kUnseen;
            statistics(stage)[kQueries + row] = there ? t.delta[at] : 0.0f;
          }
        },
        [&](int32_t query, int stage) {
          // Transposed: rows are keys, columns queries.
          float weights[kQueries / 8][4];
          multiply_heads<Own, Other, kQueries, kSize>(weights, k_tile, warp_row, q_tile(stage), lane);
          const float *const lse = statistics(stage), *const delta = lse + kQueries;
          const bool all = query + kQueries <= tile.length &&
                           sees_all(p, tile, query, kQueries, tile.start, tile.start + kRows);
#pragma unroll
          for (int j = 0; j < kQueries / 8; j++)
#pragma unroll
            for (int e = 0; e < 2; e++) {
              const int column = 8 * j + lane % 4 * 2 + e;
              const float shift = lse[column];
#pragma unroll
              for (int half = 0; half < 2; half++)
                weights[j][2 * half + e] = exp2f(fmaf(weights[j][2 * half + e], scale, -shift));
              if (all) continue;
              const Sight sight = sight_of(p, tile, query + column);
#pragma unroll
              for (int half = 0; half < 2; half++) {
                if (!sees(p, tile, sight, tile.start + warp_row + lane / 4 + 8 * half))
                  weights[j][2 * half + e] = 0;
              }
            }
          if constexpr (kMakesValues)
            multiply_rows<Other, kQueries, kSize>(dv, weights, do_tile(stage), lane);
          if constexpr (kMakesKeys) {
            float slopes[kQueries / 8][4];
            multiply_heads<Own, Other, kQueries, kSize>(slopes, v_tile, warp_row, do_tile(stage), lane);
#pragma unroll
            for (int j = 0; j < kQueries / 8; j++)
#pragma unroll
              for (int e = 0; e < 2; e++) {
                const float less = delta[8 * j + lane % 4 * 2 + e];
#pragma unroll
                for (int half = 0; half < 2; half++)
                  slopes[j][2 * half + e] =
                      (slopes[j][2 * half + e] - less) * (weights[j][2 * half + e] * p.scale);
              }
            multiply_rows<Other, kQueries, kSize>(dk, slopes, q_tile(stage), lane);
          }
        });
  }

  if constexpr (kMakesKeys)
#pragma unroll
    for (int j = 0; j < kSize / 8; j++) Own::put(k_tile, warp_row, 8 * j, dk[j], lane);
  if constexpr (kMakesValues)
#pragma unroll
    for (int j = 0; j < kSize / 8; j++) Own::put(v_tile, warp_row, 8 * j, dv[j], lane);
  __syncthreads();
  if constexpr (kMakesKeys)
    Own::template write<kThreads>(k_tile, static_cast<bf16*>(t.dk), tile, tile.start, kv_head, p.kv_heads,
                                  p.size);
  if constexpr (kMakesValues)
    Own::template write<kThreads>(v_tile, static_cast<bf16*>(t.dv), tile, tile.start, kv_head, p.kv_heads,
                                  p.size);
}

}  // namespace

void attention_backward_bf16(Stream& stream, const Attention& problem, const AttentionTensors& tensors) {
  by_head_size(problem.size, [&](auto padded) {
    constexpr int kSize = padded();
    constexpr int64_t kShared = ForKeys<kSize>::kShared;
    const int64_t query_blocks = problem.most_tiles * problem.heads,
                  key_blocks = problem.most_tiles * problem.kv_heads;
    stream.launch(attention_queries_kernel<kSize>, query_blocks, kThreads, ForQueries<kSize>::kShared,
                  problem, tensors);
    if constexpr (kSize <= 128) {
      stream.launch(attention_keys_kernel<kSize, true, true>, key_blocks, kThreads, kShared, problem,
                    tensors);
    } else {
      stream.launch(attention_keys_kernel<kSize, false, true>, key_blocks, kThreads, kShared, problem,
                    tensors);
      stream.launch(attention_keys_kernel<kSize, true, false>, key_blocks, kThreads, kShared, problem,
                    tensors);
    }
  });
}

}  // namespace steptrain::cuda
