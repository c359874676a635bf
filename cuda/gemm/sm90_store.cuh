// How a tile's bf16 values leave a Hopper kernel: through shared memory by TMA, whole 128-byte rows at a
// time, while the next tile is multiplied.
#pragma once

#include "cuda/gemm/parts.cuh"
#include "cuda/sm90_instructions.cuh"

namespace steptrain::cuda {
namespace hopper {

constexpr int kStoreBytes = 64 * 128;              // of a box of 64 rows by 64 columns
constexpr int kGroupStoreBytes = 2 * kStoreBytes;  // of a warpgroup: one fills while the other is read

/// Whether an epilogue can leave values where the sums were.
template <typename Item, typename Sums>
concept Applies = requires(Item item, Sums& sums) {
  item.apply(sums);
};

/// Sends what the 128 threads of a warpgroup hold of 64 rows to `out`, described in boxes of 64 rows, from
/// (row, column) on, 64 columns at a time through the group's two boxes at `room`, 1024-byte aligned. `id`
/// names a barrier of the group. The group's first thread waits for the last reads (wait_for_reads) before it
/// ends.
template <typename Sums>
__device__ void send_rows(char* room, const CUtensorMap* out, Sums& sums, int32_t row, int32_t column,
                          int id) {
  static_assert(Sums::kRows == 2 && Sums::kPairs % 16 == 0);  // the same box comes first in every tile
  const int lane = static_cast<int>(threadIdx.x) % 32, first = static_cast<int>(threadIdx.x) % 128 / 32 * 16;
  const bool sends = threadIdx.x % 128 == 0;
#pragma unroll
  for (int box = 0; box < Sums::kPairs / 8; box++) {
    char* const to = room + box % 2 * kStoreBytes;
    if (sends) wait_for_reads<1>();
    group_barrier(id);
#pragma unroll
    for (int pair = 8 * box; pair < 8 * box + 8; pair += 2) {
      const uint32_t values[] = {round_to_bf16_pair(sums.at(0, pair, 0), sums.at(0, pair, 1)),
                                 round_to_bf16_pair(sums.at(1, pair, 0), sums.at(1, pair, 1)),
                                 round_to_bf16_pair(sums.at(0, pair + 1, 0), sums.at(0, pair + 1, 1)),
                                 round_to_bf16_pair(sums.at(1, pair + 1, 0), sums.at(1, pair + 1, 1))};
      // The lane's row and chunk of 16 bytes; chunks are permuted as TMA's 128-byte swizzle wants them.
      const int r = first + lane % 16, chunk = pair % 8 + lane / 16;
      store_matrices(to + r * 128 + (chunk ^ r % 8) * 16, values);
    }
    publish_writes();
    group_barrier(id);
    if (sends) {
      store_box(out, row, column + 64 * box, to);
      close_stores();
    }
  }
}

}  // namespace hopper
}  // namespace steptrain::cuda
