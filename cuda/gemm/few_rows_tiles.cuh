// The product of up to kMaxRows rows (cuda/gemm/few_rows.cuh) by tiles of W and of x, 32 of the depth at a
// time through a ring in shared memory.
//   64 × 32, 64 × 64   rows of W by tokens; 4 warps, six stages
//   128 × 128          8 warps of 64 × 32, four stages; where there is such a tile for every multiprocessor
// Where tiles are few, up to kSlices blocks share one: each takes a run of slices and leaves the sums of each
// in workspace, and the last to end adds them all in order. At 128 × 128 a step is 128·128·32 multiply-adds,
// 512 clocks of an sm_80, beside 48 KiB from shared memory, 384 clocks, and 16 KiB from the L2 cache.
#pragma once

#include <algorithm>

#include "cuda/gemm/factor.cuh"
#include "cuda/gemm/few_rows.cuh"
#include "cuda/reduce.cuh"

namespace steptrain::cuda {
namespace few {

template <int kTheRows, int kTheTokens>
struct Tile {
  static constexpr int kRows = kTheRows, kTokens = kTheTokens;
  static constexpr int kThreads = kRows == 128 ? 256 : 128, kMinBlocks = kRows == 128 ? 1 : 3;
  static constexpr int kStages = kRows == 128 ? 4 : 6;
  static constexpr int kWarpRows = kRows / 2, kWarpTokens = kTokens / (kThreads / 64);
  static constexpr int kDown = kWarpRows / 16, kGroups = kWarpTokens / kGroup;
  using Weights = FactorTile<kRows, kStepDepth, true, kThreads>;
  using Tokens = FactorTile<kTokens, kStepDepth, true, kThreads>;
  static constexpr int kStageBytes = Weights::kBytes + Tokens::kBytes;
  static constexpr int kStride = kRows + 4;  // floats between tokens of the finished tile
  static constexpr int kShared = std::max(kStages * kStageBytes, kTokens* kStride * 4);
};

/// Rows of W in a warp's part of the tile are p's and twin's by turns of 16: the column of row `row` of the
/// tile within its half of the tile.
template <typename Tile, bool kTwin>
__device__ int column_of(int row) {
  if constexpr (!kTwin) return row;
  return row / Tile::kWarpRows * (Tile::kWarpRows / 2) + row % Tile::kWarpRows / 32 * 16 + row % 16;
}
/// The row of the tile that is column `column` of a half.
template <typename Tile, bool kTwin>
__device__ int row_of(int half, int column) {
  if constexpr (!kTwin) return column;
  constexpr int kWarpColumns = Tile::kWarpRows / 2;
  return column / kWarpColumns * Tile::kWarpRows + column % kWarpColumns / 16 * 32 + half * 16 + column % 16;
}

/// `parts` blocks for each tile. sums: [tile][slice][a thread's sums][thread].
template <typename Tile, typename Epilogue>
__global__ void __launch_bounds__(Tile::kThreads, Tile::kMinBlocks)
    few_rows_tiles_kernel(const __grid_constant__ Product first_product,
                          const __grid_constant__ Epilogue epilogue, int parts, float* slice_sums,
                          uint32_t* tickets) {
  using Weights = typename Tile::Weights;
  using Tokens = typename Tile::Tokens;
  constexpr bool kHasTwin = kTwin<Epilogue>;
  constexpr int kColumns = Tile::kRows / (kHasTwin ? 2 : 1), kThreads = Tile::kThreads;
  constexpr int kSums = Tile::kDown * Tile::kGroups * 4;
  take_turn();
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int tile_index = static_cast<int>(blockIdx.x) / parts, part = static_cast<int>(blockIdx.x) % parts;
  // Tiles of the same rows of W follow each other.
  const int across = static_cast<int>((first_product.rows + Tile::kTokens - 1) / Tile::kTokens);
  int column_tile = tile_index / across;
  const Product& p = product_of(first_product, epilogue, kColumns, column_tile);
  const Product& twin = twin_of(epilogue, p);
  const int64_t token0 = int64_t{tile_index % across} * Tile::kTokens,
                column0 = int64_t{column_tile} * kColumns;
  const int warp_row = warp % 2 * Tile::kWarpRows, warp_token = warp / 2 * Tile::kWarpTokens;
  char* const shared = dynamic_shared();

  float sums[Tile::kDown][Tile::kGroups][4] = {}, totals[Tile::kDown][Tile::kGroups][4] = {};
  const auto each_sum = [&](auto body) {
#pragma unroll
    for (int i = 0; i < Tile::kDown; i++)
#pragma unroll
      for (int j = 0; j < Tile::kGroups; j++)
#pragma unroll
        for (int e = 0; e < 4; e++) body(sums[i][j][e], totals[i][j][e], (i * Tile::kGroups + j) * 4 + e);
  };
  const auto add_lora = [&] {
    if (p.rank == 0 && twin.rank == 0) return;
#pragma unroll
    for (int i = 0; i < Tile::kDown; i++)
#pragma unroll
      for (int j = 0; j < Tile::kGroups; j++)
        lora_sums(kHasTwin && i % 2 ? twin : p, column0 + column_of<Tile, kHasTwin>(warp_row + 16 * i),
                  token0 + warp_token + kGroup * j, lane, totals[i][j]);
  };
  const auto kept = [&](int slice, int i) -> float& {
    return slice_sums[((int64_t{tile_index} * kSlices + slice) * kSums + i) * kThreads + threadIdx.x];
  };

  const int steps = steps_of(p.depth);
  int slice = kSlices * part / parts;
  const int last_slice = kSlices * (part + 1) / parts;
  const int first = first_step(steps, slice), rounds = first_step(steps, last_slice) - first;
  if (parts == 1) add_lora();
  /// Ends all slices before step `step`.
  const auto end_slices = [&](int step) {
    while (slice < last_slice && first_step(steps, slice + 1) <= step) {
      each_sum([&](float& sum, float& total, int i) {
        if (parts == 1) {
          total += sum;
        } else {
          kept(slice, i) = sum;
        }
        sum = 0;
      });
      slice++;
    }
  };
  int step = first;
  run_ring<Tile::kStages>(
      rounds,
      [&](int stage, int round) {
        char* const to = shared + stage * Tile::kStageBytes;
        const int64_t depth = int64_t{first + round} * kStepDepth;
        Weights::copy(to, [&](int row, int chunk) {
          const Factor& of = kHasTwin && row % 32 / 16 ? twin.b : p.b;
          return chunk_of(of, column0 + column_of<Tile, kHasTwin>(row), depth + chunk * kEight);
        });
        Tokens::copy(to + Weights::kBytes, p.a, token0, depth);
      },
      [](int, int) {},
      [&](int stage) {
        end_slices(step++);
        char* const weights = shared + stage * Tile::kStageBytes;
        const auto at = [&](const char* chunk) { return *reinterpret_cast<const uint4*>(chunk); };
        uint4 tokens[Tile::kGroups];
#pragma unroll
        for (int j = 0; j < Tile::kGroups; j++)
          tokens[j] = at(Tokens::at(weights + Weights::kBytes, warp_token + kGroup * j + lane / 4, lane % 4));
#pragma unroll
        for (int i = 0; i < Tile::kDown; i++) {
          const int row = warp_row + 16 * i + lane / 4;
          const uint4 upper = at(Weights::at(weights, row, lane % 4)),
                      lower = at(Weights::at(weights, row + 8, lane % 4));
#pragma unroll
          for (int j = 0; j < Tile::kGroups; j++) multiply_step(sums[i][j], upper, lower, tokens[j]);
        }
      });
  end_slices(steps);
  if (parts > 1) {
    if (!last_block(tickets + tile_index, static_cast<uint32_t>(parts))) return;
    add_lora();
#pragma unroll 1  // else the sums of all slices are on their way at a time, in registers
    for (int s = 0; s < kSlices; s++) each_sum([&](float&, float& total, int i) { total += kept(s, i); });
  }
  cp_async_wait<0>();
  __syncthreads();  // no thread still reads the ring
  float* const finished = reinterpret_cast<float*>(shared);
#pragma unroll
  for (int i = 0; i < Tile::kDown; i++)
#pragma unroll
    for (int j = 0; j < Tile::kGroups; j++)
#pragma unroll
      for (int e = 0; e < 4; e++)
        finished[(warp_token + kGroup * j + lane % 4 * 2 + e % 2) * Tile::kStride + warp_row + 16 * i +
                 fragment_row(lane, e)] = totals[i][j][e];
  __syncthreads();
  store_outputs<Tile::kTokens, kColumns, kThreads>(
      p, epilogue, token0, column0, [&](int half, int token, int column) {
        return finished[token * Tile::kStride + row_of<Tile, kHasTwin>(half, column)];
      });
}

template <typename Tile, typename Epilogue>
int64_t tiles_of(const Product& p, const Epilogue& epilogue) {
  constexpr int kColumns = Tile::kRows / (kTwin<Epilogue> ? 2 : 1);
  return (p.rows + Tile::kTokens - 1) / Tile::kTokens * column_tiles(p, epilogue, kColumns);
}

template <typename Tile, typename Epilogue>
void launch_tiles(Stream& stream, const Product& p, const Epilogue& epilogue) {
  const int64_t tiles = tiles_of<Tile>(p, epilogue);
  int parts = 1;
  while (parts < kSlices && tiles * parts < std::min(stream.hardware.multiprocessors, kTickets)) parts *= 2;
  float* const sums =
      parts > 1 ? stream.scratch.take<float>(tiles * kSlices * Tile::kRows * Tile::kTokens) : nullptr;
  stream.launch_early({}, few_rows_tiles_kernel<Tile, Epilogue>, tiles * parts, Tile::kThreads, Tile::kShared,
                      p, epilogue, parts, sums, stream.ticket);
}

}  // namespace few
}  // namespace steptrain::cuda
