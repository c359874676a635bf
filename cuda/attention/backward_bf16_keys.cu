// dk = scale·dsᵀ·q and dv = pᵀ·do on tensor cores (see problem.h). A block takes kRows keys of one KV head
// and walks over the queries of the group's heads, or of a part of them, in order, in tiles of kQueries,
// double-buffered where shared memory allows. Four warps divide the work in two ways: first each computes
// scores of a part of [keys, queries] and writes p and ds, rounded, to shared memory; then each sums a part
// of [keys, head] over all queries of the tile. So no warp holds more than a quarter of dk and dv, and keys
// and queries are read from shared memory for 32 rows at a time where registers allow.
// With D = 128 a tile is 4·64·32·128 multiply-adds, 1,024 clocks of a multiprocessor of sm_80, beside 144 KiB
// read from shared memory (each warp: 24 for the scores, 12 for the sums), 1,152 clocks at 128 bytes a clock.
#include "cuda/attention/backward.cuh"

namespace steptrain::cuda {
namespace {

constexpr int kThreads = kBackwardThreads;
constexpr int kWarps = kThreads / 32;

template <int kSize>
struct Backward {
  static constexpr int kRows = kSize <= 128 ? 64 : 32;
  static constexpr int kQueries = kSize <= 64 ? 64 : 32;
  static constexpr int kStages = kSize <= 128 ? 2 : 1;
  /// A warp's part of the scores.
  static constexpr int kScoreRows = kRows / 2, kScoreColumns = kQueries / 2;
  /// A warp's part of dk and dv.
  static constexpr int kSumRows = 32, kSumColumns = kSize * kRows / 32 / kWarps;
  static constexpr int kRowWarps = kSize / kSumColumns;  // warps per row
  using Own = HeadTile<kRows, kSize>;
  using Other = HeadTile<kQueries, kSize>;
  using Weights = HeadTile<kRows, kQueries>;
  static constexpr int kTileBytes = 2 * Own::kBytes + 2 * kStages * Other::kBytes + 2 * Weights::kBytes;
  static constexpr int kShared =
      kTileBytes + 2 * kStages * kQueries * 4;  // with lse and delta of the queries
  static_assert(kBackwardRows % kRows == 0 && kRows / kSumRows * kRowWarps == kWarps);
};

template <int kSize>
__global__ void __launch_bounds__(kThreads, 2)
    attention_keys_kernel(const __grid_constant__ Attention p, const __grid_constant__ AttentionTensors t,
                          const __grid_constant__ GroupParts parts) {
  using B = Backward<kSize>;
  using Own = typename B::Own;
  using Other = typename B::Other;
  using Weights = typename B::Weights;
  constexpr int kQueries = B::kQueries, kDown = B::kScoreRows / 16, kSumDown = B::kSumRows / 16,
                kColumns = B::kScoreColumns / 8, kParts = kBackwardRows / B::kRows;
  extern __shared__ uint4 shared[];
  char* const k_tile = reinterpret_cast<char*>(shared);
  char* const v_tile = k_tile + Own::kBytes;
  char* const p_tile = v_tile + Own::kBytes;
  char* const ds_tile = p_tile + Weights::kBytes;
  const auto q_tile = [&](int stage) { return ds_tile + Weights::kBytes + 2 * stage * Other::kBytes; };
  const auto do_tile = [&](int stage) { return q_tile(stage) + Other::kBytes; };
  const auto statistics = [&](int stage) {
    return reinterpret_cast<float*>(k_tile + B::kTileBytes) + 2 * stage * kQueries;
  };

  const unsigned columns = static_cast<unsigned>(p.kv_heads * parts.parts), index = blockIdx.x / columns;
  const HeadRange heads = find_heads(p, parts, blockIdx.x % columns);
  const int32_t kv_head = heads.kv_head;
  AttentionTile tile = find_tile(p, index / kParts, kBackwardRows, true);
  tile.start += static_cast<int32_t>(index % kParts) * B::kRows;
  if (!tile.exists || tile.start >= tile.length) return;
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int score_row = warp / 2 * B::kScoreRows, score_column = warp % 2 * B::kScoreColumns;
  const int sum_row = warp / B::kRowWarps * B::kSumRows, sum_column = warp % B::kRowWarps * B::kSumColumns;
  const int32_t last = tile.start + B::kRows < tile.length ? tile.start + B::kRows : tile.length;
  const int32_t begin = first_query(p, tile.start) / kQueries * kQueries,
                end = end_query(p, tile, tile.start, last - tile.start);

  Own::template copy<kThreads>(k_tile, static_cast<const bf16*>(t.k), tile, tile.start, kv_head, p.kv_heads,
                               p.size);
  Own::template copy<kThreads>(v_tile, static_cast<const bf16*>(t.v), tile, tile.start, kv_head, p.kv_heads,
                               p.size);
  const float scale = p.scale * kLog2e;
  float dk[kSumDown][B::kSumColumns / 8][4] = {}, dv[kSumDown][B::kSumColumns / 8][4] = {};
  for (int32_t head = heads.begin; head < heads.end; head++) {
    pipeline<B::kStages>(
        begin, end, kQueries,
        [&](int32_t query, int stage) {
          Other::template copy<kThreads>(q_tile(stage), static_cast<const bf16*>(t.q), tile, query, head,
                                         p.heads, p.size);
          Other::template copy<kThreads>(do_tile(stage), static_cast<const bf16*>(t.dout), tile, query, head,
                                         p.heads, p.size);
          const int row = static_cast<int>(threadIdx.x);
          if (row < kQueries) {
            const bool inside = query + row < tile.length;
            const int64_t at = head * p.tokens + tile.begin + query + row;
            statistics(stage)[row] = inside ? t.lse[at] * kLog2e : kPaddedLse;
            statistics(stage)[kQueries + row] = inside ? t.delta[at] : 0.0f;
          }
        },
        [&](int32_t query, int stage) {
          // Rows are keys, columns are queries.
          float weights[kDown][kColumns][4], slopes[kDown][kColumns][4];
          multiply_heads<Own, Other, kDown, B::kScoreColumns, kSize>(weights, k_tile, score_row,
                                                                     q_tile(stage), score_column, lane);
          multiply_heads<Own, Other, kDown, B::kScoreColumns, kSize>(slopes, v_tile, score_row,
                                                                     do_tile(stage), score_column, lane);
          const float *const lse = statistics(stage), *const delta = lse + kQueries;
          const bool all = query + kQueries <= tile.length &&
                           all_visible(p, tile, query, kQueries, tile.start, tile.start + B::kRows);
#pragma unroll
          for (int j = 0; j < kColumns; j++) {
#pragma unroll
            for (int e = 0; e < 2; e++) {
              const int column = score_column + fragment_column(lane, 4 * j + e);
              const float shift = lse[column], less = delta[column];
              const VisibleRange visible = all ? VisibleRange{} : visible_keys(p, tile, query + column);
#pragma unroll
              for (int i = 0; i < kDown; i++)
#pragma unroll
                for (int half = 0; half < 2; half++) {
                  float &weight = weights[i][j][2 * half + e], &slope = slopes[i][j][2 * half + e];
                  weight = exp2_approximate(fmaf(weight, scale, -shift));
                  const int32_t key = tile.start + score_row + 16 * i + fragment_row(lane, 2 * half);
                  if (!all && !key_visible(p, tile, visible, key)) weight = 0;
                  slope = (slope - less) * weight;
                }
            }
#pragma unroll
            for (int i = 0; i < kDown; i++) {
              Weights::put(p_tile, score_row + 16 * i, score_column + 8 * j, weights[i][j], lane);
              Weights::put(ds_tile, score_row + 16 * i, score_column + 8 * j, slopes[i][j], lane);
            }
          }
          __syncthreads();  // p and ds are written; the next ones are, after the barrier of the next tile
          multiply_rows<Other, kSumDown, kQueries, B::kSumColumns>(
              dv, do_tile(stage), sum_column, lane, [&](uint32_t(&a)[4], int i, int depth) {
                Weights::load_a(a, p_tile, sum_row + 16 * i, depth, lane);
              });
          multiply_rows<Other, kSumDown, kQueries, B::kSumColumns>(
              dk, q_tile(stage), sum_column, lane, [&](uint32_t(&a)[4], int i, int depth) {
                Weights::load_a(a, ds_tile, sum_row + 16 * i, depth, lane);
              });
        });
  }

#pragma unroll
  for (int i = 0; i < kSumDown; i++)
#pragma unroll
    for (int j = 0; j < B::kSumColumns / 8; j++) {
      const int row = sum_row + 16 * i, column = sum_column + 8 * j;
#pragma unroll
      for (int e = 0; e < 4; e++) dk[i][j][e] *= p.scale;
      if (parts.dk) {
#pragma unroll
        for (int half = 0; half < 2; half++) {
          const int32_t key = tile.start + row + fragment_row(lane, 2 * half);
          const int at = column + fragment_column(lane, 0);
          put_part(parts.dk, p, tile, heads, key, at, dk[i][j][2 * half], dk[i][j][2 * half + 1]);
          put_part(parts.dv, p, tile, heads, key, at, dv[i][j][2 * half], dv[i][j][2 * half + 1]);
        }
      } else {
        Own::put(k_tile, row, column, dk[i][j], lane);
        Own::put(v_tile, row, column, dv[i][j], lane);
      }
    }
  if (parts.dk) return;
  __syncthreads();
  Own::template write<kThreads>(k_tile, static_cast<bf16*>(t.dk), tile, tile.start, kv_head, p.kv_heads,
                                p.size);
  Own::template write<kThreads>(v_tile, static_cast<bf16*>(t.dv), tile, tile.start, kv_head, p.kv_heads,
                                p.size);
}

}  // namespace

void attention_keys_bf16(Stream& stream, const Attention& problem, const AttentionTensors& tensors,
                         const GroupParts& parts) {
  by_head_size(problem.size, [&](auto padded) {
    using B = Backward<padded()>;
    stream.launch(attention_keys_kernel<padded()>,
                  problem.max_tiles * problem.kv_heads * parts.parts * (kBackwardRows / B::kRows), kThreads,
                  B::kShared, problem, tensors, parts);
  });
}

}  // namespace steptrain::cuda
