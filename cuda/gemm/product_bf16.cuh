// The mainloop of the bf16 product (cuda/gemm/product.h) on tensor cores by mma.sync.m16n8k16, which every
// GPU from sm_80 on has. A block computes a tile of rows × columns, 32 of the depth at a time, through a ring
// of buffers in shared memory. cp.async fills them where both factors are bf16 with addresses and rows of
// whole 16 bytes; other factors are converted on their way through registers. The LoRA pair
// always goes through registers.
//   Large  128 × 128, 8 warps of 64 × 32, 64 KiB of shared memory; enough tiles to fill the GPU
//   Small   64 ×  64, 4 warps of 32 × 32, 32 KiB
//   Few     16 ×  32, 2 warps of 16 × 16, 24 KiB; up to 16 rows of dy·W: W streams through many blocks
// On sm_80 a multiprocessor does 1,024 multiply-adds a clock and reads 128 bytes a clock of shared memory. A
// step of 16 of a warp in Large is 64·32·16 multiply-adds, 32 clocks, and (64 + 32)·16·2 bytes, 24 clocks, so
// tensor cores are the bound; in Small, 16 and 16 clocks; in Few, 4 and 8: that tile is bound by reading its
// factor from memory anyway. Where the epilogue has a twin, the first half of each warp's columns are p's,
// the other half twin's. An element is summed in f32 over the LoRA rank, then over the depth, ascending in
// steps of 16: its bits depend neither on its place in a tile, nor on the tile's size or loading, nor on the
// size of the product. Outside the factors tiles hold zeros, which leave sums unchanged.
#pragma once

#include "cuda/gemm/factor.cuh"

namespace steptrain::cuda {
namespace portable {

constexpr int kDepth = 32;

struct Large {
  static constexpr int kRows = 128, kColumns = 128, kWarpRows = 64, kWarpColumns = 32;
  static constexpr int kStages = 4, kMinBlocks = 2;
};
struct Small {
  static constexpr int kRows = 64, kColumns = 64, kWarpRows = 32, kWarpColumns = 32;
  static constexpr int kStages = 4, kMinBlocks = 4;
};
struct Few {
  static constexpr int kRows = 16, kColumns = 32, kWarpRows = 16, kWarpColumns = 16;
  static constexpr int kStages = 8, kMinBlocks = 8;
};

template <typename Tile>
constexpr int kThreads = 32 * (Tile::kRows / Tile::kWarpRows) * (Tile::kColumns / Tile::kWarpColumns);
template <typename Tile>
constexpr int kStageBytes = (Tile::kRows + Tile::kColumns) * kDepth * 2;

/// Computes the sums of one tile after another, with all threads of a block.
template <Layout kLayout, typename Tile, bool kAsync, bool kTwin = false>
class Mainloop {
  using A = FactorTile<Tile::kRows, kDepth, a_k_major(kLayout), kThreads<Tile>>;
  using B = FactorTile<Tile::kColumns, kDepth, b_k_major(kLayout), kThreads<Tile>>;
  static constexpr int kDown = Tile::kWarpRows / 16, kColumnGroups = Tile::kWarpColumns / 8;
  static constexpr int kStages = Tile::kStages;
  static_assert(!kTwin || (kAsync && b_k_major(kLayout)));

 public:
  using Sums = TensorSums<2 * kDown, kColumnGroups, Tile::kColumns / Tile::kWarpColumns>;

  /// `twin` is p where there is none.
  __device__ Mainloop(const Product& p, const Product& twin, char* ring)
      : p_(p),
        twin_(twin),
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

  /// Fills the ring for a tile, once no thread reads an earlier one. A group of copies is committed for
  /// absent depth tiles too, so that the number of pending groups tells which has arrived.
  __device__ void fill(TilePlace place) const {
    for (int stage = 0; stage < kStages - 1; stage++) {
      if (stage < tiles_) {
        if constexpr (kAsync) {
          A::copy(a_stage(stage), p_.a, place.row, stage * kDepth);
          copy_b(b_stage(stage), place, stage * kDepth);
        } else {
          A::store(a_stage(stage), A::load(p_.a, a_dropout_, place.row, stage * kDepth));
          B::store(b_stage(stage), B::load(p_.b, b_dropout_, place.column, stage * kDepth));
        }
      }
      if constexpr (kAsync) cp_async_commit();
    }
  }

  __device__ Sums zero(TilePlace place) const {
    Sums sums{};
    sums.tile = place;
    sums.first_row = warp_row_ + fragment_row(lane_, 0);
    sums.first_column = (kTwin ? warp_column_ / 2 : warp_column_) + fragment_column(lane_, 0);
    return sums;
  }

  /// The product of the LoRA pair, through the stage that `fill` leaves free.
  __device__ void add_lora(TilePlace place, Sums& sums) const {
    if constexpr (kTwin) {
      add_lora<0, kColumnGroups / 2>(p_, place, sums);
      add_lora<kColumnGroups / 2, kColumnGroups>(twin_, place, sums);
      if (p_.rank > 0 || twin_.rank > 0) scale_lora(p_, twin_, sums);
    } else {
      add_lora<0, kColumnGroups>(p_, place, sums);
      if (p_.rank > 0) scale_lora(p_, sums);
    }
  }

  __device__ void add(TilePlace place, Sums& sums) const {
    for (int tile = 0; tile < tiles_; tile++) {
      if constexpr (kAsync) cp_async_wait<kStages - 2>();
      __syncthreads();  // all threads see this tile, and none still reads the one before
      const int next = tile + kStages - 1;
      const int into = next % kStages;
      if constexpr (kAsync) {
        if (next < tiles_) {
          A::copy(a_stage(into), p_.a, place.row, int64_t{next} * kDepth);
          copy_b(b_stage(into), place, int64_t{next} * kDepth);
        }
        cp_async_commit();
        multiply(tile % kStages, sums);
      } else {
        typename A::Fetched a = {};
        typename B::Fetched b = {};
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
  /// The output column of row `row` of a twin tile of b, half of whose rows are p's.
  __device__ static int64_t twin_column(TilePlace place, int row) {
    constexpr int kHalf = Tile::kWarpColumns / 2;
    return place.column + row / Tile::kWarpColumns * kHalf + row % kHalf;
  }
  __device__ static bool is_twins(int row) { return row / (Tile::kWarpColumns / 2) % 2 != 0; }

  __device__ void copy_b(char* tile, TilePlace place, int64_t depth) const {
    if constexpr (kTwin) {
      B::copy(tile, [&](int row, int chunk) {
        return chunk_of(is_twins(row) ? twin_.b : p_.b, twin_column(place, row), depth + chunk * kEight);
      });
    } else {
      B::copy(tile, p_.b, place.column, depth);
    }
  }

  /// The product of the LoRA pair of p or twin, into a warp's columns from 8·kFrom to 8·kTo.
  template <int kFrom, int kTo>
  __device__ void add_lora(const Product& of, TilePlace place, Sums& sums) const {
    for (int64_t k = 0; k < of.rank; k += kDepth) {
      __syncthreads();
      A::store(a_stage(kStages - 1), A::load(of.lora_a, nullptr, place.row, k));
      if constexpr (kTwin) {
        B::store(b_stage(kStages - 1), B::load([&](int row, int chunk, float(&v)[kEight]) {
                   fetch(of.lora_b, twin_column(place, row), k + chunk * kEight, v);
                 }));
      } else {
        B::store(b_stage(kStages - 1), B::load(of.lora_b, nullptr, place.column, k));
      }
      __syncthreads();
      multiply<kFrom, kTo>(kStages - 1, sums);
    }
  }

  __device__ char* a_stage(int stage) const { return ring_ + stage * kStageBytes<Tile>; }
  __device__ char* b_stage(int stage) const { return a_stage(stage) + Tile::kRows * kDepth * 2; }

  template <int kFrom = 0, int kTo = kColumnGroups>
  __device__ void multiply(int stage, Sums& sums) const {
#pragma unroll
    for (int k = 0; k < kDepth; k += kStep) {
      uint32_t b[kColumnGroups / 2][4];
#pragma unroll
      for (int j = kFrom / 2; j < (kTo + 1) / 2; j++)
        load_b<B, b_k_major(kLayout)>(b[j], b_stage(stage), warp_column_ + 16 * j, k, lane_);
#pragma unroll
      for (int i = 0; i < kDown; i++) {
        uint32_t a[4];
        load_a<A, a_k_major(kLayout)>(a, a_stage(stage), warp_row_ + 16 * i, k, lane_);
#pragma unroll
        for (int j = kFrom; j < kTo; j++)
          mma(sums.block(i, j), a, b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1]);
      }
    }
  }

  const Product &p_, &twin_;
  char* ring_;
  const Dropout *a_dropout_, *b_dropout_;
  int tiles_, lane_, warp_row_, warp_column_;
};

template <Layout kLayout, typename Tile, bool kAsync, typename Epilogue>
__global__ void __launch_bounds__(kThreads<Tile>, Tile::kMinBlocks)
    gemm_bf16_kernel(const __grid_constant__ Product p, const __grid_constant__ Epilogue epilogue) {
  using Loop = Mainloop<kLayout, Tile, kAsync, kTwin<Epilogue>>;
  constexpr int kTileColumns = tile_columns<Epilogue>(Tile::kColumns);
  constexpr int64_t kColumns = item_columns<Epilogue>(Tile::kColumns);
  const Loop loop(p, twin_of(epilogue, p), dynamic_shared());
  typename Epilogue::template Item<typename Loop::Sums> item(epilogue, p);
  TilePlace place = tile_place(p, blockIdx.x, Tile::kRows, kColumns);
  const int64_t end = place.column + kColumns < p.columns ? place.column + kColumns : p.columns;
  loop.fill(place);
  for (bool more = true; more;) {
    if constexpr (kAsync) {
      // Otherwise the compiler computes addresses before the loop and spills them.
      forget(place.row);
      forget(place.column);
    }
    auto sums = loop.zero(place);
    if constexpr (Epilogue::kLora) loop.add_lora(place, sums);
    loop.add(place, sums);
    place.column += kTileColumns;
    more = kColumns > kTileColumns && place.column < end;
    if (more) {
      // The next tile's first copies run during the epilogue of this one.
      __syncthreads();
      loop.fill(place);
    }
    item.add(sums, !more);
  }
}

/// Launches a block for each item of the product.
template <Layout kLayout, typename Tile, bool kAsync, typename Epilogue>
void launch(Stream& stream, const Product& p, const Epilogue& epilogue) {
  stream.launch(gemm_bf16_kernel<kLayout, Tile, kAsync, Epilogue>,
                tile_count(p, Tile::kRows, item_columns<Epilogue>(Tile::kColumns)), kThreads<Tile>,
                Tile::kStages * kStageBytes<Tile>, p, epilogue);
}

}  // namespace portable
}  // namespace steptrain::cuda
