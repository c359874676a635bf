// The gradients of a LoRA pair (cuda/gemm/skinny.h), sums over tokens: da = vᵀ·drop(x) and dbᵀ = uᵀ·dy. A
// block of eight warps sums one split of the tokens for 128 columns of the wide factor and all ranks, 64
// tokens at a time through a ring of three buffers; a warp has 16 of the columns. Where tokens are split, the
// threads write their accumulators to workspace, and the last block to arrive at a tile adds its splits in
// order. cp.async loads the wide factor where it is aligned and nothing is dropped; otherwise it goes through
// registers, as the narrow one, in f32, always does. A buffer holds 16 KiB of the wide factor and 128 bytes per
// rank of the other. With a rank of 64 a round is 128·64·64 multiply-adds, 512 clocks of a multiprocessor of
// sm_80, but the 16 KiB take about 1,600 clocks of its share of an A100's 1.6 TB/s: reading is the bound.
#include "cuda/gemm/factor.cuh"
#include "cuda/gemm/skinny.h"
#include "cuda/reduce.cuh"

namespace steptrain::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kColumns = 128;  // of the wide factor
constexpr int kTokens = 64;
constexpr int kStages = 3;
constexpr int kBlocks = 264;     // to split tokens for: two on each of the 132 multiprocessors of an H100
constexpr int kMinTokens = 256;  // of a split

struct Gradients {
  NarrowGradient of[2];
};

template <int kRank>
__global__ void __launch_bounds__(kThreads) gradient_kernel(const __grid_constant__ Gradients gradients) {
  using Wide = FactorTile<kColumns, kTokens, false, kThreads>;
  using Thin = FactorTile<kRank, kTokens, false, kThreads>;
  constexpr int kAcross = kRank / 8;
  extern __shared__ uint4 shared[];
  const auto wide_stage = [](int stage) {
    return reinterpret_cast<char*>(shared) + stage * (Wide::kBytes + Thin::kBytes);
  };
  const auto thin_stage = [&](int stage) { return wide_stage(stage) + Wide::kBytes; };

  const int64_t before = gradients.of[0].tiles * gradients.of[0].splits;
  const bool second = int64_t{blockIdx.x} >= before;
  const NarrowGradient& p = gradients.of[second ? 1 : 0];
  const int64_t block = int64_t{blockIdx.x} - (second ? before : 0);
  // Neighbouring blocks have the same split: together they read whole rows.
  const int64_t tile = block % p.tiles, split = block / p.tiles;
  const int64_t first_token = split * p.tokens, first_column = tile * kColumns;
  const int64_t end = first_token + p.tokens < p.wide.rows ? first_token + p.tokens : p.wide.rows;
  const Dropout* const dropout = p.dropped ? &p.dropout : nullptr;
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  float sums[kAcross][4] = {};

  struct Fetched {
    typename Wide::Fetched wide;
    typename Thin::Fetched thin;
  };
  run_ring<kStages>(
      static_cast<int>((end - first_token + kTokens - 1) / kTokens),
      [&](int stage, int round) {
        if (p.async)
          Wide::copy(wide_stage(stage), p.wide, first_column, first_token + int64_t{round} * kTokens);
      },
      [&](int round) {
        Fetched held = {};
        const int64_t token = first_token + int64_t{round} * kTokens;
        if (!p.async) held.wide = Wide::load(p.wide, dropout, first_column, token);
        held.thin = Thin::load(p.narrow, nullptr, 0, token);
        return held;
      },
      [&](int stage, const Fetched& held) {
        if (!p.async) Wide::store(wide_stage(stage), held.wide);
        Thin::store(thin_stage(stage), held.thin);
      },
      [&](int stage) {
#pragma unroll
        for (int k = 0; k < kTokens; k += kStep) {
          uint32_t a[4];
          load_a<Wide, false>(a, wide_stage(stage), warp * 16, k, lane);
#pragma unroll
          for (int j = 0; j < kAcross; j += 2) {
            uint32_t b[4];
            load_b<Thin, false>(b, thin_stage(stage), 8 * j, k, lane);
            mma(sums[j], a, b[0], b[1]);
            mma(sums[j + 1], a, b[2], b[3]);
          }
        }
      });

  if (p.splits > 1) {
    const auto held = [&](int64_t of, int j) {
      float4* const tiles = reinterpret_cast<float4*>(p.partial);
      return tiles + ((of * p.tiles + tile) * kAcross + j) * kThreads + threadIdx.x;
    };
#pragma unroll
    for (int j = 0; j < kAcross; j++)
      *held(split, j) = make_float4(sums[j][0], sums[j][1], sums[j][2], sums[j][3]);
    if (!last_block(p.tickets + tile, static_cast<uint32_t>(p.splits))) return;
#pragma unroll
    for (int j = 0; j < kAcross; j++) {
      float4 total = *held(0, j);
      for (int64_t of = 1; of < p.splits; of++) {
        const float4 next = *held(of, j);
        total = make_float4(total.x + next.x, total.y + next.y, total.z + next.z, total.w + next.w);
      }
      sums[j][0] = total.x, sums[j][1] = total.y, sums[j][2] = total.z, sums[j][3] = total.w;
    }
  }
#pragma unroll
  for (int j = 0; j < kAcross; j++)
#pragma unroll
    for (int i = 0; i < 4; i++) {
      const int64_t column = first_column + warp * 16 + fragment_row(lane, i);
      const int64_t rank = 8 * j + fragment_column(lane, i);
      if (column < p.wide.columns && rank < p.narrow.columns)
        p.out[rank * p.narrow_stride + column * p.wide_stride] += p.scale * sums[j][i];
    }
}

/// Splits the tokens by the shapes alone, so that all GPUs of a kind give the same bits.
void plan(Stream& stream, NarrowGradient& p, int64_t padded_rank, uint32_t* tickets) {
  p.async = !p.dropped && readable_async(p.wide);
  p.tiles = (p.wide.columns + kColumns - 1) / kColumns;
  if (p.tiles == 0) return;
  const int64_t max_splits = (p.wide.rows + kMinTokens - 1) / kMinTokens;
  const int64_t wanted = kBlocks / p.tiles > 1 ? kBlocks / p.tiles : 1;
  const int64_t splits = max_splits < wanted ? max_splits : wanted;
  p.tokens = ((p.wide.rows + splits - 1) / splits + kTokens - 1) / kTokens * kTokens;
  p.splits = (p.wide.rows + p.tokens - 1) / p.tokens;
  if (p.splits == 1) return;
  p.partial = stream.scratch.take<float>(p.splits * p.tiles * kColumns * padded_rank);
  p.tickets = tickets;
}

template <int kRank>
void launch(Stream& stream, NarrowGradient first, NarrowGradient second) {
  constexpr int kMaxSplitTiles = kBlocks / 2;  // tiles; with more of them tokens are not split
  static_assert(2 * kMaxSplitTiles <= kTickets);
  plan(stream, first, kRank, stream.ticket);
  plan(stream, second, kRank, stream.ticket + kMaxSplitTiles);
  const int64_t blocks = first.tiles * first.splits + second.tiles * second.splits;
  stream.launch(gradient_kernel<kRank>, blocks, kThreads, kStages * (kColumns + kRank) * kTokens * 2,
                Gradients{{first, second}});
}

}  // namespace

void add_narrow_gradients(Stream& stream, NarrowGradient first, NarrowGradient second) {
  if (first.wide.rows == 0) return;
  const int64_t rank = first.narrow.columns;
  if (rank == 0) return;
  if (stream.hardware.choice.takes(Successor::lora) && add_gradients_of_tokens(stream, first, second)) return;
  if (rank <= 16) return launch<16>(stream, first, second);
  if (rank <= 32) return launch<32>(stream, first, second);
  launch<kMaxNarrow>(stream, first, second);
}

}  // namespace steptrain::cuda
