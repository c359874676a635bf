// The mainloop of the bf16 product (cuda/gemm.h) on tensor cores by mma.sync.m16n8k16, which every GPU from
// sm_80 on has. A block makes a tile of rows × columns, 32 of the depth at a time through a ring of kStages
// buffers in shared memory, filled by cp.async where both factors are bf16, 16-byte aligned and of rows of
// whole 16 bytes, else through registers, converting on the way; the extra depth always goes through
// registers.
//   Large  128 × 128, 8 warps of 64 × 32, 64 KiB of shared memory; enough tiles to fill the GPU
//   Small   64 ×  64, 4 warps of 32 × 32, 32 KiB
// An element is summed in f32 over the extra depth, then over the depth, ascending in steps of 16: its bits
// depend neither on its place in a tile, nor on the tile's size or way of loading, nor on the size of the
// product. Outside of the factors tiles hold zeros, which leave sums as they are.
#pragma once

#include "cuda/gemm_factor.cuh"

namespace steptrain::cuda {
namespace portable {

constexpr int kDepth = 32;
constexpr int kStages = 4;

struct Large {
  static constexpr int kRows = 128, kColumns = 128, kWarpRows = 64, kWarpColumns = 32, kMinBlocks = 2;
};
struct Small {
  static constexpr int kRows = 64, kColumns = 64, kWarpRows = 32, kWarpColumns = 32, kMinBlocks = 4;
};

template <typename Tile>
constexpr int kThreads = 32 * (Tile::kRows / Tile::kWarpRows) * (Tile::kColumns / Tile::kWarpColumns);
template <typename Tile>
constexpr int kStageBytes = (Tile::kRows + Tile::kColumns) * kDepth * 2;

/// The sums of one tile after another of a block of threads.
template <Layout kLayout, typename Tile, bool kAsync>
class Mainloop {
  using A = FactorTile<Tile::kRows, kDepth, a_along_depth(kLayout), kThreads<Tile>>;
  using B = FactorTile<Tile::kColumns, kDepth, b_along_depth(kLayout), kThreads<Tile>>;
  static constexpr int kDown = Tile::kWarpRows / 16, kAcross = Tile::kWarpColumns / 8;

 public:
  using Sums = TensorSums<2 * kDown, kAcross, Tile::kColumns / Tile::kWarpColumns>;

  __device__ Mainloop(const Product& p, char* ring)
      : p_(p),
        ring_(ring),
        a_dropout_(p.dropped == Dropped::a ? &p.dropout : nullptr),
        b_dropout_(p.dropped == Dropped::b ? &p.dropout : nullptr),
        tiles_(static_cast<int>((p.depth + kDepth - 1) / kDepth)) {
    const int warp = static_cast<int>(threadIdx.x) / 32;
    constexpr int kWarpsAcross = Tile::kColumns / Tile::kWarpColumns;
    lane_ = static_cast<int>(threadIdx.x) % 32;
    warp_row_ = warp / kWarpsAcross * Tile::kWarpRows;
    warp_column_ = warp % kWarpsAcross * Tile::kWarpColumns;
  }

  /// The ring's first fill, once no thread reads an earlier tile any more. Groups are closed for absent depth
  /// tiles too, so that their count tells which has arrived.
  __device__ void fill(TilePlace place) const {
    for (int stage = 0; stage < kStages - 1; stage++) {
      if (stage < tiles_) {
        if constexpr (kAsync) {
          A::copy(a_stage(stage), p_.a, place.row, stage * kDepth);
          B::copy(b_stage(stage), p_.b, place.column, stage * kDepth);
        } else {
          A::store(a_stage(stage), A::load(p_.a, a_dropout_, place.row, stage * kDepth));
          B::store(b_stage(stage), B::load(p_.b, b_dropout_, place.column, stage * kDepth));
        }
      }
      if constexpr (kAsync) commit_copies();
    }
  }

  __device__ Sums zero(TilePlace place) const {
    Sums sums{};
    sums.tile = place;
    sums.first_row = warp_row_ + lane_ / 4;
    sums.first_column = warp_column_ + lane_ % 4 * 2;
    return sums;
  }

  /// The extra product, through the stage that the first fill leaves free.
  __device__ void add_extra(TilePlace place, Sums& sums) const {
    for (int64_t k = 0; k < p_.extra_depth; k += kDepth) {
      __syncthreads();
      A::store(a_stage(kStages - 1), A::load(p_.extra_a, nullptr, place.row, k));
      B::store(b_stage(kStages - 1), B::load(p_.extra_b, nullptr, place.column, k));
      __syncthreads();
      multiply(kStages - 1, sums);
    }
    if (p_.extra_depth > 0) scale_extra(p_, sums);
  }

  __device__ void add(TilePlace place, Sums& sums) const {
    for (int tile = 0; tile < tiles_; tile++) {
      if constexpr (kAsync) wait_for_copies<kStages - 2>();
      __syncthreads();  // this tile has arrived for all threads, and all are done with the one before it
      const int next = tile + kStages - 1;
      const int into = next % kStages;
      if constexpr (kAsync) {
        if (next < tiles_) {
          A::copy(a_stage(into), p_.a, place.row, int64_t{next} * kDepth);
          B::copy(b_stage(into), p_.b, place.column, int64_t{next} * kDepth);
        }
        commit_copies();
        multiply(tile % kStages, sums);
      } else {
        typename A::Held a = {};
        typename B::Held b = {};
        if (next < tiles_) {
          a = A::load(p_.a, a_dropout_, place.row, int64_t{next} * kDepth);
          b = B::load(p_.b, b_dropout_, place.column, int64_t{next} * kDepth);
        }
        multiply(tile % kStages, sums);
        if (next < tiles_) {
          A::store(a_stage(into), a);
          B::store(b_stage(into), b);
        }
      }
    }
  }

 private:
  __device__ char* a_stage(int stage) const { return ring_ + stage * kStageBytes<Tile>; }
  __device__ char* b_stage(int stage) const { return a_stage(stage) + Tile::kRows * kDepth * 2; }

  __device__ void multiply(int stage, Sums& sums) const {
#pragma unroll
    for (int k = 0; k < kDepth; k += kStep) {
      uint32_t b[kAcross / 2][4];
#pragma unroll
      for (int j = 0; j < kAcross / 2; j++)
        load_b<B, b_along_depth(kLayout)>(b[j], b_stage(stage), warp_column_ + 16 * j, k, lane_);
#pragma unroll
      for (int i = 0; i < kDown; i++) {
        uint32_t a[4];
        load_a<A, a_along_depth(kLayout)>(a, a_stage(stage), warp_row_ + 16 * i, k, lane_);
#pragma unroll
        for (int j = 0; j < kAcross; j++)
          multiply_add(sums.block(i, j), a, b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1]);
      }
    }
  }

  const Product& p_;
  char* ring_;
  const Dropout *a_dropout_, *b_dropout_;
  int tiles_, lane_, warp_row_, warp_column_;
};

template <Layout kLayout, typename Tile, bool kAsync, typename Epilogue>
__global__ void __launch_bounds__(kThreads<Tile>, Tile::kMinBlocks)
    gemm_bf16_kernel(const __grid_constant__ Product p, const __grid_constant__ Epilogue epilogue) {
  using Loop = Mainloop<kLayout, Tile, kAsync>;
  constexpr int64_t kColumns = item_columns<Epilogue>(Tile::kColumns);
  const Loop loop(p, dynamic_shared());
  typename Epilogue::template Item<typename Loop::Sums> item(epilogue, p);
  TilePlace place = tile_place(p, blockIdx.x, Tile::kRows, kColumns);
  const int64_t end = place.column + kColumns < p.columns ? place.column + kColumns : p.columns;
  loop.fill(place);
  for (bool more = true; more;) {
    if constexpr (kAsync) {
      // Or addresses are computed before the loop and spilled.
      forget(place.row);
      forget(place.column);
    }
    auto sums = loop.zero(place);
    if constexpr (Epilogue::kExtra) loop.add_extra(place, sums);
    loop.add(place, sums);
    place.column += Tile::kColumns;
    more = kColumns > Tile::kColumns && place.column < end;
    if (more) {
      // The next tile's first copies run during this one's epilogue.
      __syncthreads();
      loop.fill(place);
    }
    item.add(sums, !more);
  }
}

/// A launch for each item of the product.
template <Layout kLayout, typename Tile, bool kAsync, typename Epilogue>
void launch(Stream& stream, const Product& p, const Epilogue& epilogue) {
  stream.launch(gemm_bf16_kernel<kLayout, Tile, kAsync, Epilogue>,
                tile_count(p, Tile::kRows, item_columns<Epilogue>(Tile::kColumns)), kThreads<Tile>,
                kStages * kStageBytes<Tile>, p, epilogue);
}

}  // namespace portable
}  // namespace steptrain::cuda
