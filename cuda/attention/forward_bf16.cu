// Attention forward on tensor cores (mma.sync, cp.async), after FlashAttention-2 (Dao 2023). A block takes
// kRows queries of one head, a quarter for each of four warps, and walks over tiles of kKeys keys with an
// online softmax: the maximum of the unscaled scores, then scale, shift and log2 e in one fmaf. The next keys
// are fetched during p·v, the next values during q·kᵀ. Scores, sums and o are f32; p is rounded to bf16 for
// p·v. A masked key has a weight of exactly 0.
// With D = 128 a tile is 2·128·64·128 multiply-adds of a block, 2,048 clocks at 1,024 a clock of a
// multiprocessor of sm_80, beside 160 KiB read from shared memory (each warp: queries 8, keys 16, values 16),
// 1,280 clocks at 128 bytes a clock, and 128·64 exponentials, 512 clocks at 16 a clock.
#include <type_traits>

#include "cuda/attention/tile.cuh"

namespace steptrain::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kWarps = kThreads / 32;

template <int kSize>
struct Forward {
  /// 16-row slices of a warp: where registers allow, two slices share what is read of keys and values.
  static constexpr int kDown = kSize <= 64 || kSize == 128 ? 2 : 1;
  static constexpr int kRows = 16 * kDown * kWarps;
  static constexpr int kKeys = kSize <= 128 ? 64 : 32;
  using Queries = HeadTile<kRows, kSize>;
  using Keys = HeadTile<kKeys, kSize>;
  static constexpr int kShared = Queries::kBytes + 2 * Keys::kBytes;
  static constexpr int kBlocks = kSize <= 128 ? 2 : 1;  // per multiprocessor, which limits registers
};

template <int kSize>
__global__ void __launch_bounds__(kThreads, Forward<kSize>::kBlocks)
    attention_bf16_kernel(const __grid_constant__ Attention p, const bf16* q, const bf16* k, const bf16* v,
                          bf16* o, float* lse) {
  using F = Forward<kSize>;
  using Queries = typename F::Queries;
  using Keys = typename F::Keys;
  constexpr int kDown = F::kDown, kKeys = F::kKeys;
  extern __shared__ uint4 shared[];
  char* const q_tile = reinterpret_cast<char*>(shared);
  char* const k_tile = q_tile + Queries::kBytes;
  char* const v_tile = k_tile + Keys::kBytes;

  const int32_t head = static_cast<int32_t>(blockIdx.x % static_cast<unsigned>(p.heads)),
                kv_head = head / p.group;
  const AttentionTile tile = find_tile(p, blockIdx.x / static_cast<unsigned>(p.heads), F::kRows);
  if (!tile.exists) return;
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int warp_row = warp * 16 * kDown;
  const int32_t begin = first_key(p, tile.start) / kKeys * kKeys,
                end = end_key(p, tile, tile.start, F::kRows);

  const auto fetch = [&](char* to, const bf16* from, int32_t key) {
    if (key < end) Keys::template copy<kThreads>(to, from, tile, key, kv_head, p.kv_heads, p.size);
    cp_async_commit();
  };
  Queries::template copy<kThreads>(q_tile, q, tile, tile.start, head, p.heads, p.size);
  fetch(k_tile, k, begin);
  fetch(v_tile, v, begin);

  float out[kDown][kSize / 8][4] = {};
  float maximum[kDown][2], sum[kDown][2];
#pragma unroll
  for (int i = 0; i < kDown; i++)
#pragma unroll
    for (int half = 0; half < 2; half++) {
      maximum[i][half] = kMinimum;
      sum[i][half] = 0;
    }
  const float scale = p.scale * kLog2e;

  for (int32_t key = begin; key < end; key += kKeys) {
    cp_async_wait<1>();
    __syncthreads();  // all threads see the keys
    float scores[kDown][kKeys / 8][4];
    multiply_heads<Queries, Keys, kDown, kKeys, kSize>(scores, q_tile, warp_row, k_tile, 0, lane);
    __syncthreads();  // no thread still reads the keys
    fetch(k_tile, k, key + kKeys);

    const bool all = all_visible(p, tile, tile.start, F::kRows, key, key + kKeys);
#pragma unroll
    for (int i = 0; i < kDown; i++) {
#pragma unroll
      for (int half = 0; half < 2; half++) {
        const VisibleRange visible =
            visible_keys(p, tile, tile.start + warp_row + 16 * i + fragment_row(lane, 2 * half));
        float new_maximum = maximum[i][half];
#pragma unroll
        for (int j = 0; j < kKeys / 8; j++)
#pragma unroll
          for (int e = 0; e < 2; e++) {
            float& score = scores[i][j][2 * half + e];
            if (!all && !key_visible(p, tile, visible, key + fragment_column(lane, 4 * j + e)))
              score = kMasked;
            new_maximum = fmaxf(new_maximum, score);
          }
        // Four lanes share a row.
        new_maximum = fmaxf(new_maximum, __shfl_xor_sync(0xffffffffu, new_maximum, 1));
        new_maximum = fmaxf(new_maximum, __shfl_xor_sync(0xffffffffu, new_maximum, 2));
        const float decay = exp2_approximate((maximum[i][half] - new_maximum) * scale),
                    shift = new_maximum * scale;
        maximum[i][half] = new_maximum;
        float total = sum[i][half] * decay;
#pragma unroll
        for (int j = 0; j < kKeys / 8; j++)
#pragma unroll
          for (int e = 0; e < 2; e++) {
            float& score = scores[i][j][2 * half + e];
            score = exp2_approximate(fmaf(score, scale, -shift));
            total += score;
          }
        sum[i][half] = total;
#pragma unroll
        for (int j = 0; j < kSize / 8; j++) {
          out[i][j][2 * half] *= decay;
          out[i][j][2 * half + 1] *= decay;
        }
      }
    }

    cp_async_wait<1>();
    __syncthreads();  // all threads see the values
    multiply_rows<Keys, kDown, kKeys, kSize>(
        out, v_tile, 0, lane, [&](uint32_t(&a)[4], int i, int depth) { round_to_a(a, scores[i], depth); });
    __syncthreads();  // no thread still reads the values
    fetch(v_tile, v, key + kKeys);
  }
  cp_async_wait<0>();

#pragma unroll
  for (int i = 0; i < kDown; i++) {
#pragma unroll
    for (int half = 0; half < 2; half++) {
      float& total = sum[i][half];
      total += __shfl_xor_sync(0xffffffffu, total, 1);
      total += __shfl_xor_sync(0xffffffffu, total, 2);
      const int32_t query = tile.start + warp_row + 16 * i + fragment_row(lane, 2 * half);
      if (lane % 4 == 0 && query < tile.length)
        lse[head * p.tokens + tile.begin + query] = maximum[i][half] * p.scale + logf(total);
      const float inverse = 1.0f / total;
#pragma unroll
      for (int j = 0; j < kSize / 8; j++) {
        out[i][j][2 * half] *= inverse;
        out[i][j][2 * half + 1] *= inverse;
      }
    }
    // No other warp reads the queries of this one.
#pragma unroll
    for (int j = 0; j < kSize / 8; j++) Queries::put(q_tile, warp_row + 16 * i, 8 * j, out[i][j], lane);
  }
  __syncthreads();
  Queries::template write<kThreads>(q_tile, o, tile, tile.start, head, p.heads, p.size);
}

}  // namespace

int forward_bf16_rows(int64_t size) {
  int rows = 0;
  by_head_size(size, [&](auto padded) { rows = Forward<padded()>::kRows; });
  return rows;
}

void attention_forward_bf16(Stream& stream, const Attention& problem, const AttentionTensors& t, float* lse) {
  by_head_size(problem.size, [&](auto padded) {
    stream.launch(attention_bf16_kernel<padded()>, problem.max_tiles * problem.heads, kThreads,
                  Forward<padded()>::kShared, problem, static_cast<const bf16*>(t.q),
                  static_cast<const bf16*>(t.k), static_cast<const bf16*>(t.v), static_cast<bf16*>(t.o), lse);
  });
}

}  // namespace steptrain::cuda
