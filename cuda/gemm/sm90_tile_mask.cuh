// The mask of the LoRA pair in Hopper's products (cuda/gemm/sm90_tiles.cuh).
#pragma once

#include "cuda/gemm/sm90_tile_ring.cuh"

namespace steptrain::cuda {
namespace hopper {

/// The mask of a tile, a bit for each element, drawn by the warps of the first group that copy nothing, while
/// the tile before is multiplied. Two take turns.
template <int kColumns>
struct TileMask {
  static constexpr int kWords = kColumns / 32;  // of a row
  static constexpr int kThreads = kGroup - 32;  // that draw
  static constexpr int kBytes = kRows * kWords * 4;
  char* memory;
  RingPlace<2> place;
  __device__ Barrier* full(int of) const { return reinterpret_cast<Barrier*>(memory + 2 * kBytes) + of; }
  __device__ Barrier* empty(int of) const { return full(2 + of); }

  __device__ void init() {
    for (int i = 0; i < 2; i++) {
      mbarrier_init(full(i), kThreads);
      mbarrier_init(empty(i), kConsumers * kGroup);
    }
  }
  __device__ uint32_t* row(int r) const {
    return reinterpret_cast<uint32_t*>(memory + place.stage * kBytes) + r * kWords;
  }

  /// `thread` of kThreads.
  template <int kWidth>
  __device__ void draw(const Product& p, const TilePlace& tile, int thread) {
    const Dropout& d = p.dropout;
    const int first_row = static_cast<int>(tile.row), first_column = static_cast<int>(tile.column),
              rows = static_cast<int>(p.rows) - first_row;
    mbarrier_wait(empty(place.stage), place.parity ^ 1);
#pragma unroll 1
    for (int i = thread; i < kRows * (kWidth / 32); i += kThreads) {
      const int r = i % kRows, word = i / kRows;
      if (r >= rows) continue;
      const auto position = static_cast<uint32_t>(d.positions[first_row + r]),
                 id = static_cast<uint32_t>(d.row_ids[first_row + r]);
      const uint32_t group = static_cast<uint32_t>(first_column) / 4 + 8 * static_cast<uint32_t>(word);
      uint32_t bits = 0;
#pragma unroll 1
      for (uint32_t g = 0; g < 8; g++) {
        const Philox4 block = philox({{group + g, position, id, 0}}, d.key0, d.key1);
#pragma unroll
        for (int e = 0; e < 4; e++) bits |= (uniform(block.v[e]) >= d.rate ? 1u : 0u) << (4 * g + e);
      }
      row(r)[word] = bits;
    }
    mbarrier_arrive(full(place.stage));
    place.advance();
  }
  /// Multiplies a consumer's sums by `factor` or 0.
  template <typename Sums>
  __device__ void apply(Sums& sums, float factor) {
    mbarrier_wait(full(place.stage), place.parity);
#pragma unroll
    for (int i = 0; i < 2; i++) {
      const uint32_t* const bits = row(sums.first_row + 8 * i);
#pragma unroll
      for (int pair = 0; pair < Sums::kPairs; pair++) {
        const uint32_t kept = bits[pair / 4] >> (8 * (pair % 4) + sums.first_column);
        sums.at(i, pair, 0) *= kept & 1u ? factor : 0.0f;
        sums.at(i, pair, 1) *= kept & 2u ? factor : 0.0f;
      }
    }
    mbarrier_arrive(empty(place.stage));
    place.advance();
  }
};

}  // namespace hopper
}  // namespace steptrain::cuda
