// The gradients of a LoRA pair (cuda/gemm/skinny.h), sums over tokens: da = vᵀ·drop(x) and dbᵀ = uᵀ·dy. A block of
// eight warps sums one split of the tokens for 128 columns of the wide factor and all ranks; a warp has 16 of the columns.
// Both factors go through cp.async, the narrow one in f32 as it is, and both outputs have equally long splits of the
// tokens, so that no block outlasts the others: 32 tokens at a time through a ring of five buffers, four blocks on a
// multiprocessor at ranks up to 16. The last block to arrive at a tile adds its splits in order.
#include "cuda/gemm/factor.cuh"
#include "cuda/gemm/skinny.h"
#include "cuda/gemm/skinny_tile.cuh"

namespace steptrain::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kColumns = 128;  // of the wide factor
constexpr int kTokens = 32;
constexpr int kStages = 5;
constexpr int kBlocks = 528;     // to split tokens for: four on each of the 132 multiprocessors of an H100
constexpr int kMinTokens = 256;  // of a split

struct Gradients {
  NarrowGradient of[2];
};

template <int kRank>
using Thin = FloatTile<kRank, kTokens, false, kThreads>;
using Wide = FactorTile<kColumns, kTokens, false, kThreads>;

template <int kRank>
__global__ void __launch_bounds__(kThreads, kRank <= 16   ? 4
                                            : kRank <= 32 ? 3
                                                          : 2)
    tokens_kernel(const __grid_constant__ Gradients gradients) {
  constexpr int kAcross = kRank / 8;
  take_turn();
  char* const shared = dynamic_shared();
  const auto wide_stage = [&](int stage) { return shared + stage * (Wide::kBytes + Thin<kRank>::kBytes); };
  const auto thin_stage = [&](int stage) { return wide_stage(stage) + Wide::kBytes; };

  const int64_t before = gradients.of[0].tiles * gradients.of[0].splits;
  const bool second = int64_t{blockIdx.x} >= before;
  const NarrowGradient& p = gradients.of[second ? 1 : 0];
  const int64_t block = int64_t{blockIdx.x} - (second ? before : 0);
  // Neighbouring blocks have the same split: together they read whole rows, the last ones first, which the product in
  // front has read last.
  const int64_t tile = block % p.tiles, split = p.splits - 1 - block / p.tiles;
  const int64_t first_token = split * p.tokens, first_column = tile * kColumns;
  const int64_t end = first_token + p.tokens < p.wide.rows ? first_token + p.tokens : p.wide.rows;
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  float sums[kAcross][4] = {};

  run_ring<kStages>(
      static_cast<int>((end - first_token + kTokens - 1) / kTokens),
      [&](int stage, int round) {
        const int64_t token = first_token + int64_t{round} * kTokens;
        Wide::copy(wide_stage(stage), p.wide, first_column, token);
        Thin<kRank>::copy(thin_stage(stage),
                          [&](int rank, int k) { return floats_of(p.narrow, false, rank, token + k); });
      },
      [&](int stage, int round) {
        if (p.dropped)
          drop_copied<Wide>(wide_stage(stage), p.dropout, p.wide.rows, first_token + int64_t{round} * kTokens,
                            first_column);
      },
      [&](int stage) {
#pragma unroll
        for (int k = 0; k < kTokens; k += kStep) {
          uint32_t a[4];
          load_a<Wide, false>(a, wide_stage(stage), warp * 16, k, lane);
#pragma unroll
          for (int j = 0; j < kAcross; j++) {
            uint32_t b[2];
            Thin<kRank>::factor(b, thin_stage(stage), 8 * j, k, lane);
            mma(sums[j], a, b[0], b[1]);
          }
        }
      });

  if (p.splits > 1 &&
      !join_parts<4, kThreads>(sums, p.partial, p.tickets + tile, tile, p.tiles, split, p.splits))
    return;
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
template <int kRank>
void launch(Stream& stream, NarrowGradient first, NarrowGradient second) {
  NarrowGradient* const both[] = {&first, &second};
  int64_t tiles = 0;
  for (NarrowGradient* p : both) {
    p->tiles = (p->wide.columns + kColumns - 1) / kColumns;
    tiles += p->tiles;
  }
  if (tiles == 0) return;
  const int64_t rows = first.wide.rows, max_splits = (rows + kMinTokens - 1) / kMinTokens;
  const int64_t wanted = kBlocks / tiles > 1 ? kBlocks / tiles : 1;
  const int64_t splits = max_splits < wanted ? max_splits : wanted;
  const int64_t tokens = ((rows + splits - 1) / splits + kTokens - 1) / kTokens * kTokens;
  uint32_t* tickets = stream.ticket;
  int64_t blocks = 0;
  for (NarrowGradient* p : both) {
    p->tokens = tokens;
    p->splits = (rows + tokens - 1) / tokens;
    blocks += p->tiles * p->splits;
    if (p->splits == 1) continue;
    p->partial = stream.scratch.take<float>(p->splits * p->tiles * kColumns * kRank);
    p->tickets = tickets;
    tickets += p->tiles;
  }
  static_assert(kBlocks / 2 <= kTickets);  // with more tiles tokens are not split
  stream.launch_early({}, tokens_kernel<kRank>, blocks, kThreads,
                      kStages * (Wide::kBytes + Thin<kRank>::kBytes), Gradients{{first, second}});
}

}  // namespace

bool takes_narrow_gradients(const TensorView& first, const TensorView& second, int64_t rank) {
  return readable_async(factor(first)) && readable_async(factor(second)) && rank <= kMaxNarrow;
}

void add_narrow_gradients(Stream& stream, NarrowGradient first, NarrowGradient second) {
  const int64_t rank = first.narrow.columns;
  if (first.wide.rows == 0 || rank == 0) return;
  if (rank <= 16) {
    launch<16>(stream, first, second);
  } else if (rank <= 32) {
    launch<32>(stream, first, second);
  } else {
    launch<kMaxNarrow>(stream, first, second);
  }
}

}  // namespace steptrain::cuda
