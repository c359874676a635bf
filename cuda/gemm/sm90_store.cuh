// Stores a tile's bf16 values on Hopper: through shared memory by TMA, in whole 128-byte rows, while the next
// tile is multiplied.
#pragma once

#include "cuda/gemm/parts.cuh"
#include "cuda/sm90_instructions.cuh"

namespace steptrain::cuda {
namespace hopper {

constexpr int kStoreBytes = 64 * 128;              // of a box of 64 rows by 64 columns
constexpr int kGroupStoreBytes = 2 * kStoreBytes;  // of a warpgroup: one fills while the other is read

/// Whether an epilogue can turn sums into values in place.
template <typename Item, typename Sums>
concept Applies = requires(Item item, Sums& sums) {
  item.apply(sums);
};

/// Stores the 64 rows that the 128 threads of a warpgroup hold to `out`, whose tensor map has boxes of 64
/// rows, from (row, column) on: 64 columns at a time, through the two boxes of the group at `buffer`,
/// 1024-byte aligned. `id` is a named barrier of the group. The group's first thread must wait for the last
/// reads (tma_store_wait_read) before it ends.
template <typename Sums>
__device__ void send_rows(char* buffer, const CUtensorMap* out, Sums& sums, int32_t row, int32_t column,
                          int id) {
  static_assert(Sums::kRows == 2 && Sums::kPairs % 16 == 0);  // so that every tile begins with the same box
  const int lane = static_cast<int>(threadIdx.x) % 32, first = static_cast<int>(threadIdx.x) % 128 / 32 * 16;
  const bool sends = threadIdx.x % 128 == 0;
#pragma unroll
  for (int box = 0; box < Sums::kPairs / 8; box++) {
    char* const to = buffer + box % 2 * kStoreBytes;
    if (sends) tma_store_wait_read<1>();
    warpgroup_barrier(id);
#pragma unroll
    for (int pair = 8 * box; pair < 8 * box + 8; pair += 2) {
      const uint32_t values[] = {round_to_bf16_pair(sums.at(0, pair, 0), sums.at(0, pair, 1)),
                                 round_to_bf16_pair(sums.at(1, pair, 0), sums.at(1, pair, 1)),
                                 round_to_bf16_pair(sums.at(0, pair + 1, 0), sums.at(0, pair + 1, 1)),
                                 round_to_bf16_pair(sums.at(1, pair + 1, 0), sums.at(1, pair + 1, 1))};
      // The lane's row and chunk of 16 bytes; chunks are permuted as in TMA's 128-byte swizzle.
      const int r = first + lane % 16, chunk = pair % 8 + lane / 16;
      stmatrix(to + r * 128 + (chunk ^ r % 8) * 16, values);
    }
    fence_proxy_async();
    warpgroup_barrier(id);
    if (sends) {
      tma_store(out, row, column + 64 * box, to);
      tma_store_commit();
    }
  }
}

}  // namespace hopper
}  // namespace steptrain::cuda
