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

#include "cuda/gemm_parts.cuh"

namespace steptrain::cuda {
namespace portable {

constexpr int kDepth = 32;
constexpr int kStages = 4;
constexpr int kStep = 16;  // depth of one multiply_add

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

/// A tile of one factor in shared memory, in chunks of eight elements: rows along the depth [outer][kDepth],
/// or rows along the outer extent [kDepth][outer]. Chunks of a row are permuted by the row, so that the eight
/// rows that load_matrices reads at a time lie in different banks.
template <int kOuter, bool kAlongDepth, int kBlockThreads>
struct FactorTile {
  static constexpr int kChunks = (kAlongDepth ? kDepth : kOuter) / kEight;  // per row
  static constexpr int kPerThread = kOuter * kDepth / kEight / kBlockThreads;
  static_assert(kPerThread * kBlockThreads * kEight == kOuter * kDepth);

  __device__ static char* at(char* tile, int row, int chunk) {
    // Rows of 64 bytes: two of them share the banks of one line.
    const int permuted = chunk ^ (kChunks == 4 ? row >> 1 & 3 : row & 7);
    return tile + (row * kChunks + permuted) * 16;
  }

  /// body(i, row, chunk) for the chunks of a tile that the running thread fills.
  template <typename F>
  __device__ static void each_chunk(F body) {
#pragma unroll
    for (int i = 0; i < kPerThread; i++) {
      const int at = i * kBlockThreads + static_cast<int>(threadIdx.x);
      body(i, at / kChunks, at % kChunks);
    }
  }

  __device__ static void copy(char* tile, const Factor& f, int64_t outer, int64_t depth) {
    const int64_t row0 = kAlongDepth ? outer : depth, column0 = kAlongDepth ? depth : outer;
    each_chunk([&](int, int row, int chunk) {
      const int64_t r = row0 + row, c = column0 + chunk * kEight;
      const bool inside = r < f.rows && c < f.columns;
      copy_async(at(tile, row, chunk), static_cast<const bf16*>(f.data) + (inside ? r * f.columns + c : 0),
                 inside);
    });
  }

  /// The same through registers.
  struct Held {
    uint4 chunk[kPerThread];
  };
  __device__ static Held load(const Factor& f, const Dropout* dropout, int64_t outer, int64_t depth) {
    const int64_t row0 = kAlongDepth ? outer : depth, column0 = kAlongDepth ? depth : outer;
    Held held;
    each_chunk([&](int i, int row, int chunk) {
      float v[kEight];
      if (dropout) {
        fetch_dropped(f, *dropout, row0 + row, column0 + chunk * kEight, v);
      } else {
        fetch(f, row0 + row, column0 + chunk * kEight, v);
      }
      held.chunk[i] = make_uint4(round_to_bf16_pair(v[0], v[1]), round_to_bf16_pair(v[2], v[3]),
                                 round_to_bf16_pair(v[4], v[5]), round_to_bf16_pair(v[6], v[7]));
    });
    return held;
  }
  __device__ static void store(char* tile, const Held& held) {
    each_chunk(
        [&](int i, int row, int chunk) { *reinterpret_cast<uint4*>(at(tile, row, chunk)) = held.chunk[i]; });
  }
};

/// a[16,16] of rows from `outer` and depth from `k`, as multiply_add wants it.
template <typename FactorTile, bool kAlongDepth>
__device__ void load_a(uint32_t (&a)[4], char* tile, int outer, int k, int lane) {
  if constexpr (kAlongDepth) {
    load_matrices(a, FactorTile::at(tile, outer + lane % 16, k / kEight + lane / 16));
  } else {
    load_matrices_transposed(
        a, FactorTile::at(tile, k + lane % 8 + lane / 16 * 8, outer / kEight + lane / 8 % 2));
  }
}

/// Two b[16,8], of columns from `outer` and from `outer` + 8: {b0, b1} of the first, of the second.
template <typename FactorTile, bool kAlongDepth>
__device__ void load_b(uint32_t (&b)[4], char* tile, int outer, int k, int lane) {
  if constexpr (kAlongDepth) {
    load_matrices(b, FactorTile::at(tile, outer + lane % 8 + lane / 16 * 8, k / kEight + lane / 8 % 2));
  } else {
    load_matrices_transposed(b, FactorTile::at(tile, k + lane % 16, outer / kEight + lane / 16));
  }
}

/// The sums of one tile after another of a block of threads.
template <Layout kLayout, typename Tile, bool kAsync>
class Mainloop {
  using A = FactorTile<Tile::kRows, a_along_depth(kLayout), kThreads<Tile>>;
  using B = FactorTile<Tile::kColumns, b_along_depth(kLayout), kThreads<Tile>>;
  static constexpr int kDown = Tile::kWarpRows / 16, kAcross = Tile::kWarpColumns / 8;

 public:
  using Sums = TensorSums<2 * kDown, kAcross>;

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
    item.add(sums);
  }
  item.end();
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
