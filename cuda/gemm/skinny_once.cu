// v = scale·dy·B and db += scale·dyᵀ·u in one pass over dy (cuda/gemm/skinny.h), which skinny_slices.cu and
// skinny_tokens.cu read once each. A block of four warps has 256 columns of dy, 64 a warp, and one split of the tokens, 32
// at a time through a ring of three buffers. Each buffer is a factor twice: dyᵀ for db, whose sums a warp keeps to the end, and dy
// for v, of which every warp has a part of the depth; the parts of a round are added by warps in order through
// shared memory in the next round. B stays in registers.
//   Both leave sums in workspace, as lanes hold them: v's of each 256 columns, db's of each split. Another launch adds
// them in order, so that the bits of a row of v depend on that row alone, and those of db on the shape.
#include "cuda/gemm/factor.cuh"
#include "cuda/gemm/skinny.h"
#include "cuda/gemm/skinny_tile.cuh"

namespace steptrain::cuda {
namespace {

constexpr int kWarps = 4, kThreads = kWarps * kWarp;
constexpr int kOwn = 64;  // columns of a warp
constexpr int kColumns = kWarps * kOwn;
constexpr int kTokens = 32;  // of a round
constexpr int kStages = 3;
constexpr int kBlocks = 396;     // to split tokens for: three on each of the 132 multiprocessors of an H100
constexpr int kMinTokens = 128;  // of a split
constexpr int kAddThreads = 256;

template <int kRank>
using Thin = FloatTile<kRank, kTokens, false, kThreads>;
using Depth = FactorTile<kColumns, kTokens, false, kThreads>;  // dyᵀ
using Rows = FactorTile<kTokens, kColumns, true, kThreads>;    // the same bytes as dy
static_assert(Depth::kChunks == Rows::kChunks && Depth::kBytes == Rows::kBytes);

/// Sums as fours of lanes: `down` pieces of 16 rows, kRank / 8 across.
template <int kRank>
struct Fours {
  static constexpr int kAcross = kRank / 8;
  /// Of v in a round, and of db in a block.
  static constexpr int kOfRound = kTokens / 16 * kAcross * kWarp;
  static constexpr int kOfBlock = kColumns / 16 * kAcross * kWarp;
  __device__ static int at(int piece, int j, int lane) { return (piece * kAcross + j) * kWarp + lane; }
};

struct Once {
  Narrow v;
  Factor u;
  float* db = nullptr;
  int64_t tiles = 0, splits = 0, tokens = 0;  // of the columns, of the tokens, and how many a split has
  int64_t rounds = 0;                         // of all tokens
  float4 *v_parts = nullptr, *db_parts = nullptr;
};

template <int kRank>
constexpr int kShared = kStages*(Depth::kBytes + Thin<kRank>::kBytes) +
                        2 * kWarps* Fours<kRank>::kOfRound* static_cast<int>(sizeof(float4));

/// B of a warp's columns from `first` on, as mma wants it.
template <int kRank>
__device__ void load_own(uint32_t (&b)[kOwn / kStep][kRank / 8][2], const Factor& f, int64_t first,
                         int lane) {
  const auto element_at = [&](int64_t column, int rank) {
    return column < f.rows && rank < f.columns ? static_cast<const float*>(f.data)[column * f.columns + rank]
                                               : 0.0f;
  };
#pragma unroll
  for (int k = 0; k < kOwn / kStep; k++)
#pragma unroll
    for (int j = 0; j < kRank / 8; j++)
#pragma unroll
      for (int half = 0; half < 2; half++) {
        const int64_t column = first + k * kStep + half * 8 + lane % 4 * 2;
        const int rank = 8 * j + lane / 4;
        b[k][j][half] = round_to_bf16_pair(element_at(column, rank), element_at(column + 1, rank));
      }
}

template <int kRank>
__global__ void __launch_bounds__(kThreads, kRank <= 16 ? 3 : 2) once_kernel(const __grid_constant__ Once p) {
  constexpr int kAcross = kRank / 8, kDown = kTokens / 16;
  using Held = Fours<kRank>;
  take_turn();
  if (int64_t{blockIdx.x} >= p.tiles * p.splits)
    return round_others<kThreads>(p.v, int64_t{blockIdx.x} - p.tiles * p.splits);
  char* const shared = dynamic_shared();
  const auto dy_stage = [&](int stage) { return shared + stage * (Depth::kBytes + Thin<kRank>::kBytes); };
  const auto u_stage = [&](int stage) { return dy_stage(stage) + Depth::kBytes; };
  const auto parts = [&](int round) {
    return reinterpret_cast<float4*>(dy_stage(kStages)) + round % 2 * kWarps * Held::kOfRound;
  };
  // As in skinny_tokens.cu: neighbours read whole rows together, the last ones first.
  const int64_t tile = blockIdx.x % p.tiles, split = p.splits - 1 - blockIdx.x / p.tiles;
  const int64_t first_token = split * p.tokens, first_column = tile * kColumns;
  const int64_t end = first_token + p.tokens < p.u.rows ? first_token + p.tokens : p.u.rows;
  const int rounds = static_cast<int>((end - first_token + kTokens - 1) / kTokens);
  const int thread = static_cast<int>(threadIdx.x), lane = thread % kWarp, warp = thread / kWarp;

  uint32_t own[kOwn / kStep][kAcross][2];
  load_own<kRank>(own, p.v.of[0].b, first_column + warp * kOwn, lane);
  float db[kOwn / 16][kAcross][4] = {};

  const auto leave_v = [&](int round) {
    float4* const to = p.v_parts + (tile * p.rounds + first_token / kTokens + round) * Held::kOfRound;
#pragma unroll
    for (int at = thread; at < Held::kOfRound; at += kThreads) {
      float4 sum = parts(round)[at];
#pragma unroll
      for (int other = 1; other < kWarps; other++) {
        const float4 next = parts(round)[other * Held::kOfRound + at];
        sum = make_float4(sum.x + next.x, sum.y + next.y, sum.z + next.z, sum.w + next.w);
      }
      to[at] = sum;
    }
  };

  int round = 0;
  run_ring<kStages>(
      rounds,
      [&](int stage, int of) {
        const int64_t token = first_token + int64_t{of} * kTokens;
        Depth::copy(dy_stage(stage), p.v.x, first_column, token);
        Thin<kRank>::copy(u_stage(stage),
                          [&](int rank, int k) { return floats_of(p.u, false, rank, token + k); });
      },
      [](int, int) {},
      [&](int stage) {
        if (round > 0) leave_v(round - 1);
        float v[kDown][kAcross][4] = {};
#pragma unroll
        for (int k = 0; k < kOwn / kStep; k++)
#pragma unroll
          for (int i = 0; i < kDown; i++) {
            uint32_t a[4];
            load_a<Rows, true>(a, dy_stage(stage), 16 * i, warp * kOwn + k * kStep, lane);
#pragma unroll
            for (int j = 0; j < kAcross; j++) mma(v[i][j], a, own[k][j][0], own[k][j][1]);
          }
#pragma unroll
        for (int i = 0; i < kDown; i++)
#pragma unroll
          for (int j = 0; j < kAcross; j++)
            parts(round)[warp * Held::kOfRound + Held::at(i, j, lane)] =
                make_float4(v[i][j][0], v[i][j][1], v[i][j][2], v[i][j][3]);
#pragma unroll
        for (int k = 0; k < kTokens; k += kStep)
#pragma unroll
          for (int i = 0; i < kOwn / 16; i++) {
            uint32_t a[4];
            load_a<Depth, false>(a, dy_stage(stage), warp * kOwn + 16 * i, k, lane);
#pragma unroll
            for (int j = 0; j < kAcross; j++) {
              uint32_t b[2];
              Thin<kRank>::factor(b, u_stage(stage), 8 * j, k, lane);
              mma(db[i][j], a, b[0], b[1]);
            }
          }
        round++;
      });
  __syncthreads();
  leave_v(rounds - 1);
  float4* const to = p.db_parts + (split * p.tiles + tile) * Held::kOfBlock;
#pragma unroll
  for (int i = 0; i < kOwn / 16; i++)
#pragma unroll
    for (int j = 0; j < kAcross; j++)
      to[Held::at(warp * (kOwn / 16) + i, j, lane)] =
          make_float4(db[i][j][0], db[i][j][1], db[i][j][2], db[i][j][3]);
}

/// Σ of `count` fours, `stride` apart, in order.
__device__ inline float4 sum_parts(const float4* from, int64_t stride, int64_t count) {
  float4 sum = *from;
#pragma unroll 8
  for (int64_t i = 1; i < count; i++) {
    const float4 next = from[i * stride];
    sum = make_float4(sum.x + next.x, sum.y + next.y, sum.z + next.z, sum.w + next.w);
  }
  return sum;
}

/// Adds what blocks have left, a thread four of a lane: first v's, then db's.
template <int kRank>
__global__ void __launch_bounds__(kAddThreads) add_once_kernel(const __grid_constant__ Once p) {
  take_turn();
  const int64_t of_v = p.rounds * Fours<kRank>::kOfRound, of_db = p.tiles * Fours<kRank>::kOfBlock;
  const int64_t thread = int64_t{blockIdx.x} * kAddThreads + threadIdx.x;
  if (thread >= of_v + of_db) return;
  const bool is_v = thread < of_v;
  const int64_t at = is_v ? thread : thread - of_v;
  const float4 sum =
      is_v ? sum_parts(p.v_parts + at, of_v, p.tiles) : sum_parts(p.db_parts + at, of_db, p.splits);
  const int lane = static_cast<int>(at % kWarp);
  const int64_t piece = at / kWarp / Fours<kRank>::kAcross, j = at / kWarp % Fours<kRank>::kAcross;
  const float of[] = {sum.x, sum.y, sum.z, sum.w};
  const NarrowFactor& v = p.v.of[0];
#pragma unroll
  for (int i = 0; i < 4; i++) {
    const int64_t row = piece * 16 + fragment_row(lane, i), column = 8 * j + fragment_column(lane, i);
    const float value = p.v.scale * of[i];
    const bool inside = column < v.columns;
    if (is_v) {
      if (row >= p.v.x.rows) continue;
      if (v.out && inside) v.out[row * v.columns + column] = value;
      const int64_t padded = whole_chunks(v.columns);
      if (v.rounded && column < padded)
        v.rounded[row * padded + column] = from_float<bf16>(inside ? v.rounded_scale * value : 0.0f);
    } else if (inside && row < p.v.x.columns) {
      p.db[row * v.columns + column] += value;
    }
  }
}

/// Splits the tokens by the shape alone.
template <int kRank>
void launch(Stream& stream, Once p) {
  const int64_t rows = p.v.x.rows;
  p.tiles = (p.v.x.columns + kColumns - 1) / kColumns;
  p.rounds = (rows + kTokens - 1) / kTokens;
  const int64_t max_splits = (rows + kMinTokens - 1) / kMinTokens;
  const int64_t wanted = kBlocks / p.tiles > 1 ? kBlocks / p.tiles : 1;
  const int64_t splits = max_splits < wanted ? max_splits : wanted;
  p.tokens = ((rows + splits - 1) / splits + kTokens - 1) / kTokens * kTokens;
  p.splits = (rows + p.tokens - 1) / p.tokens;
  const int64_t of_v = p.rounds * Fours<kRank>::kOfRound, of_db = p.tiles * Fours<kRank>::kOfBlock;
  p.v_parts = stream.scratch.take<float4>(p.tiles * of_v);
  p.db_parts = stream.scratch.take<float4>(p.splits * of_db);
  stream.launch_early({}, once_kernel<kRank>, p.tiles * p.splits + rounding_blocks<kThreads>(p.v), kThreads,
                      kShared<kRank>, p);
  stream.launch_early({}, add_once_kernel<kRank>, (of_v + of_db + kAddThreads - 1) / kAddThreads, kAddThreads,
                      0, p);
}

}  // namespace

bool takes_narrow_once(const TensorView& rows, int64_t rank) {
  return readable_async(factor(rows)) && rank > 0 && rank <= kMaxNarrowOnce && rows[0] > 0 && rows[1] > 0;
}

void multiply_narrow_once(Stream& stream, const Narrow& v, const float* u, float* db) {
  Once p;
  p.v = v;
  p.u = {u, DType::f32, v.x.rows, v.of[0].columns};
  p.db = db;
  v.of[0].columns <= 16 ? launch<16>(stream, p) : launch<kMaxNarrowOnce>(stream, p);
}

}  // namespace steptrain::cuda
