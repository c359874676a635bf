// The bf16 product (cuda/gemm.h) on tensor cores by mma.sync.m16n8k16, which every GPU from sm_80 on has. A
// block makes a tile of rows × columns, 32 of the depth at a time through a ring of kStages buffers in shared
// memory, filled by cp.async where both factors are bf16, 16-byte aligned and of rows of whole 16 bytes, else
// through registers, converting on the way; the extra depth always goes through registers.
//   Large  128 × 128, 8 warps of 64 × 32, 64 KiB of shared memory; enough tiles to fill the GPU
//   Small   64 ×  64, 4 warps of 32 × 32, 32 KiB
// An element is summed in f32 over the extra depth, then over the depth, ascending in steps of 16: its bits
// depend neither on its place in a tile, nor on the tile's size or way of loading, nor on the size of the
// product. Outside of the factors tiles hold zeros, which leave sums as they are.
#include "cuda/convert.h"
#include "cuda/gemm_parts.cuh"

namespace steptrain::cuda {
namespace {

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

template <Layout kLayout, typename Tile, bool kAsync>
__global__ void __launch_bounds__(kThreads<Tile>, Tile::kMinBlocks)
    gemm_bf16_kernel(const __grid_constant__ Product p) {
  using A = FactorTile<Tile::kRows, a_along_depth(kLayout), kThreads<Tile>>;
  using B = FactorTile<Tile::kColumns, b_along_depth(kLayout), kThreads<Tile>>;
  constexpr int kDown = Tile::kWarpRows / 16, kAcross = Tile::kWarpColumns / 8;
  extern __shared__ uint4 shared[];
  const auto a_stage = [](int stage) { return reinterpret_cast<char*>(shared) + stage * kStageBytes<Tile>; };
  const auto b_stage = [&](int stage) { return a_stage(stage) + Tile::kRows * kDepth * 2; };

  const TilePlace place = tile_place(p, blockIdx.x, Tile::kRows, Tile::kColumns);
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  constexpr int kWarpsAcross = Tile::kColumns / Tile::kWarpColumns;
  const int warp_row = warp / kWarpsAcross * Tile::kWarpRows,
            warp_column = warp % kWarpsAcross * Tile::kWarpColumns;
  float sums[kDown][kAcross][4] = {};

  const auto multiply = [&](int stage) {
#pragma unroll
    for (int k = 0; k < kDepth; k += kStep) {
      uint32_t b[kAcross / 2][4];
#pragma unroll
      for (int j = 0; j < kAcross / 2; j++)
        load_b<B, b_along_depth(kLayout)>(b[j], b_stage(stage), warp_column + 16 * j, k, lane);
#pragma unroll
      for (int i = 0; i < kDown; i++) {
        uint32_t a[4];
        load_a<A, a_along_depth(kLayout)>(a, a_stage(stage), warp_row + 16 * i, k, lane);
#pragma unroll
        for (int j = 0; j < kAcross; j++)
          multiply_add(sums[i][j], a, b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1]);
      }
    }
  };
  /// body(sums, row, column): each pair of neighbouring columns that the thread holds.
  const auto each_pair = [&](auto body) {
#pragma unroll
    for (int i = 0; i < kDown; i++)
#pragma unroll
      for (int j = 0; j < kAcross; j++)
#pragma unroll
        for (int half = 0; half < 2; half++)
          body(sums[i][j][2 * half], sums[i][j][2 * half + 1],
               place.row + warp_row + 16 * i + lane / 4 + 8 * half,
               place.column + warp_column + 8 * j + lane % 4 * 2);
  };

  const Dropout* const a_dropout = p.dropped == Dropped::a ? &p.dropout : nullptr;
  const Dropout* const b_dropout = p.dropped == Dropped::b ? &p.dropout : nullptr;
  const int tiles = static_cast<int>((p.depth + kDepth - 1) / kDepth);
  // The ring's first fill, which runs while the extra depth is multiplied. Groups are closed for absent tiles
  // too, so that their count tells which tile has arrived.
  for (int stage = 0; stage < kStages - 1; stage++) {
    if (stage < tiles) {
      if constexpr (kAsync) {
        A::copy(a_stage(stage), p.a, place.row, stage * kDepth);
        B::copy(b_stage(stage), p.b, place.column, stage * kDepth);
      } else {
        A::store(a_stage(stage), A::load(p.a, a_dropout, place.row, stage * kDepth));
        B::store(b_stage(stage), B::load(p.b, b_dropout, place.column, stage * kDepth));
      }
    }
    if constexpr (kAsync) commit_copies();
  }

  for (int64_t k = 0; k < p.extra_depth; k += kDepth) {
    __syncthreads();
    A::store(a_stage(kStages - 1), A::load(p.extra_a, nullptr, place.row, k));
    B::store(b_stage(kStages - 1), B::load(p.extra_b, nullptr, place.column, k));
    __syncthreads();
    multiply(kStages - 1);
  }
  if (p.extra_depth > 0) {
    each_pair([&](float& first, float& second, int64_t row, int64_t column) {
      float factor[4] = {1, 1, 1, 1};
      if (p.dropped == Dropped::extra && row < p.rows)
        dropout_factors(p.dropout, row, column / 4 * 4, factor);
      first *= p.extra_scale * (column % 4 == 0 ? factor[0] : factor[2]);
      second *= p.extra_scale * (column % 4 == 0 ? factor[1] : factor[3]);
    });
  }

  for (int tile = 0; tile < tiles; tile++) {
    if constexpr (kAsync) wait_for_copies<kStages - 2>();
    __syncthreads();  // this tile has arrived for all threads, and all are done with the one before it
    const int next = tile + kStages - 1;
    const int into = next % kStages;
    if constexpr (kAsync) {
      if (next < tiles) {
        A::copy(a_stage(into), p.a, place.row, int64_t{next} * kDepth);
        B::copy(b_stage(into), p.b, place.column, int64_t{next} * kDepth);
      }
      commit_copies();
      multiply(tile % kStages);
    } else {
      typename A::Held a = {};
      typename B::Held b = {};
      if (next < tiles) {
        a = A::load(p.a, a_dropout, place.row, int64_t{next} * kDepth);
        b = B::load(p.b, b_dropout, place.column, int64_t{next} * kDepth);
      }
      multiply(tile % kStages);
      if (next < tiles) {
        A::store(a_stage(into), a);
        B::store(b_stage(into), b);
      }
    }
  }

  const bool paired = writes_pairs(p);
  each_pair([&](float first, float second, int64_t row, int64_t column) {
    finish(p, paired, row, column, first, second);
  });
}

template <typename Tile, bool kAsync>
void launch(Stream& stream, Layout layout, const Product& p) {
  const auto kernel = layout == Layout::forward ? gemm_bf16_kernel<Layout::forward, Tile, kAsync>
                      : layout == Layout::input ? gemm_bf16_kernel<Layout::input, Tile, kAsync>
                                                : gemm_bf16_kernel<Layout::weight, Tile, kAsync>;
  stream.launch(kernel, tile_count(p, Tile::kRows, Tile::kColumns), kThreads<Tile>,
                kStages * kStageBytes<Tile>, p);
}

/// Whether cp.async can read it once it is bf16.
bool aligned(const Factor& f) {
  return f.columns % kEight == 0 && (f.dtype != DType::bf16 || reinterpret_cast<uintptr_t>(f.data) % 16 == 0);
}

/// f in bf16: itself, or a copy in workspace.
Factor as_bf16(Stream& stream, const Factor& f) {
  if (f.dtype == DType::bf16) return f;
  const auto view = [&](void* data, DType dtype) {
    TensorView t;
    t.data = data;
    t.shape = {f.rows, f.columns};
    t.rank = 2;
    t.dtype = dtype;
    return t;
  };
  bf16* copy = stream.scratch.take<bf16>(f.rows * f.columns);
  convert(stream, view(const_cast<void*>(f.data), DType::f32), view(copy, DType::bf16));
  return {copy, DType::bf16, f.rows, f.columns};
}

}  // namespace

void multiply_bf16(Stream& stream, Layout layout, Product p) {
  const bool plain = p.dropped == Dropped::nothing || p.dropped == Dropped::extra;
  if (!plain || !aligned(p.a) || !aligned(p.b)) return launch<Small, false>(stream, layout, p);
  if (p.rows == 0 || p.columns == 0) return;
  p.a = as_bf16(stream, p.a);
  p.b = as_bf16(stream, p.b);
#ifdef STEPTRAIN_SM90
  if (stream.hardware.compute_capability == 90 && aligned(p.extra_a) && aligned(p.extra_b)) {
    p.extra_a = as_bf16(stream, p.extra_a);
    p.extra_b = as_bf16(stream, p.extra_b);
    return multiply_sm90(stream, layout, p);
  }
#endif
  if (tile_count(p, Large::kRows, Large::kColumns) >= stream.hardware.multiprocessors) {
    launch<Large, true>(stream, layout, p);
  } else {
    launch<Small, true>(stream, layout, p);
  }
}

}  // namespace steptrain::cuda
