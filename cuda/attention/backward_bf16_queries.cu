// dq = scale·ds·k on tensor cores (see problem.h). A block takes 64 queries of one head, 16 for each of four
// warps, and walks over their keys, double-buffered where shared memory allows. ds goes from accumulators to
// operands in registers.
// With D = 128 a tile is 3·64·64·128 multiply-adds, 1,536 clocks of a multiprocessor of sm_80, beside 224 KiB
// read from shared memory (each warp: q and do 8, k twice and v 48), 1,792 clocks at 128 bytes a clock.
#include "cuda/attention/backward.cuh"

namespace steptrain::cuda {
namespace {

constexpr int kThreads = kBackwardThreads;
constexpr int kRows = kBackwardRows;

template <int kSize>
struct Backward {
  static constexpr int kKeys = kSize <= 128 ? 64 : 32;
  static constexpr int kStages = kSize <= 128 ? 2 : 1;
  using Own = HeadTile<kRows, kSize>;
  using Other = HeadTile<kKeys, kSize>;
  static constexpr int kShared = 2 * Own::kBytes + 2 * kStages * Other::kBytes;
};

template <int kSize>
__global__ void __launch_bounds__(kThreads)
    attention_queries_kernel(const __grid_constant__ Attention p,
                             const __grid_constant__ AttentionTensors t) {
  using B = Backward<kSize>;
  using Own = typename B::Own;
  using Other = typename B::Other;
  constexpr int kKeys = B::kKeys;
  extern __shared__ uint4 shared[];
  char* const q_tile = reinterpret_cast<char*>(shared);
  char* const do_tile = q_tile + Own::kBytes;
  const auto k_tile = [&](int stage) { return do_tile + Own::kBytes + 2 * stage * Other::kBytes; };
  const auto v_tile = [&](int stage) { return k_tile(stage) + Other::kBytes; };

  const int32_t head = static_cast<int32_t>(blockIdx.x % static_cast<unsigned>(p.heads)),
                kv_head = head / p.group;
  const AttentionTile tile = find_tile(p, blockIdx.x / static_cast<unsigned>(p.heads), kRows);
  if (!tile.exists) return;
  const int lane = static_cast<int>(threadIdx.x) % 32, warp_row = static_cast<int>(threadIdx.x) / 32 * 16;

  Own::template copy<kThreads>(q_tile, static_cast<const bf16*>(t.q), tile, tile.start, head, p.heads,
                               p.size);
  Own::template copy<kThreads>(do_tile, static_cast<const bf16*>(t.dout), tile, tile.start, head, p.heads,
                               p.size);
  VisibleRange visible[2];
  float lse[2], delta[2];
#pragma unroll
  for (int half = 0; half < 2; half++) {
    const int32_t query = tile.start + warp_row + fragment_row(lane, 2 * half);
    const bool inside = query < tile.length;
    const int64_t at = head * p.tokens + tile.begin + query;
    visible[half] = visible_keys(p, tile, query);
    lse[half] = inside ? t.lse[at] * kLog2e : kPaddedLse;
    delta[half] = inside ? t.delta[at] : 0.0f;
  }
  const float scale = p.scale * kLog2e;
  float dq[1][kSize / 8][4] = {};
  pipeline<B::kStages>(
      first_key(p, tile.start) / kKeys * kKeys, end_key(p, tile, tile.start, kRows), kKeys,
      [&](int32_t key, int stage) {
        Other::template copy<kThreads>(k_tile(stage), static_cast<const bf16*>(t.k), tile, key, kv_head,
                                       p.kv_heads, p.size);
        Other::template copy<kThreads>(v_tile(stage), static_cast<const bf16*>(t.v), tile, key, kv_head,
                                       p.kv_heads, p.size);
      },
      [&](int32_t key, int stage) {
        float weights[1][kKeys / 8][4], slopes[1][kKeys / 8][4];
        multiply_heads<Own, Other, 1, kKeys, kSize>(weights, q_tile, warp_row, k_tile(stage), 0, lane);
        multiply_heads<Own, Other, 1, kKeys, kSize>(slopes, do_tile, warp_row, v_tile(stage), 0, lane);
        const bool all = all_visible(p, tile, tile.start, kRows, key, key + kKeys);
#pragma unroll
        for (int j = 0; j < kKeys / 8; j++)
#pragma unroll
          for (int i = 0; i < 4; i++) {
            const int half = i / 2;
            float weight = exp2_approximate(fmaf(weights[0][j][i], scale, -lse[half]));
            if (!all && !key_visible(p, tile, visible[half], key + 8 * j + fragment_column(lane, i)))
              weight = 0;
            slopes[0][j][i] = (slopes[0][j][i] - delta[half]) * weight;
          }
        multiply_rows<Other, 1, kKeys, kSize>(
            dq, k_tile(stage), 0, lane,
            [&](uint32_t(&a)[4], int i, int depth) { round_to_a(a, slopes[i], depth); });
      });

#pragma unroll
  for (int j = 0; j < kSize / 8; j++) {
#pragma unroll
    for (int i = 0; i < 4; i++) dq[0][j][i] *= p.scale;
    Own::put(q_tile, warp_row, 8 * j, dq[0][j], lane);
  }
  __syncthreads();
  Own::template write<kThreads>(q_tile, static_cast<bf16*>(t.dq), tile, tile.start, head, p.heads, p.size);
}

}  // namespace

void attention_queries_bf16(Stream& stream, const Attention& problem, const AttentionTensors& tensors) {
  by_head_size(problem.size, [&](auto padded) {
    stream.launch(attention_queries_kernel<padded()>, problem.max_tiles * problem.heads, kThreads,
                  Backward<padded()>::kShared, problem, tensors);
  });
}

}  // namespace steptrain::cuda
