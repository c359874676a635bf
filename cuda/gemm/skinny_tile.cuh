// What the kernels of a LoRA pair's own products share: the rounding of the factor that the next product reads; the narrow
// factor in shared memory as it is in memory, f32, by cp.async; and the sums of several blocks.
#pragma once

#include "cuda/gemm/factor.cuh"
#include "cuda/gemm/skinny.h"
#include "cuda/reduce.cuh"

namespace steptrain::cuda {

/// Blocks of kThreads that round_others needs.
template <int kThreads>
int64_t rounding_blocks(const Narrow& p) {
  int64_t blocks = 0;
  for (const NarrowFactor& f : p.of) blocks += (f.count + kThreads * kEight - 1) / (kThreads * kEight);
  return blocks;
}
/// Rounds the factors that the next product reads; done by the blocks after those with tiles.
template <int kThreads>
__device__ void round_others(const Narrow& p, int64_t block) {
  for (const NarrowFactor& f : p.of) {
    const int64_t blocks = (f.count + kThreads * kEight - 1) / (kThreads * kEight);
    if (block < blocks) {
      const int64_t at = (block * kThreads + threadIdx.x) * kEight;
      if (at >= f.count) return;
      const int64_t padded = whole_chunks(f.other_columns), row = at / padded, column = at % padded;
      const float* const from = f.other + row * f.other_columns + column;
      float v[kEight];
      load8(from, in_group(column, f.other_columns), reinterpret_cast<uintptr_t>(from) % 16 == 0, v);
      store8(f.other_rounded + at, kEight, true, v);
      return;
    }
    block -= blocks;
  }
}

/// Up to four elements of an f32 factor from (outer, k) on along its rows.
struct FloatChunk {
  const float* data;
  int count;
  bool aligned;  // 16 bytes that cp.async can read, all of them or none inside
};
__device__ inline FloatChunk floats_of(const Factor& f, bool k_major, int64_t outer, int64_t k) {
  const int64_t row = k_major ? outer : k, column = k_major ? k : outer;
  const int64_t left = row < f.rows ? f.columns - column : 0;
  const int count = static_cast<int>(left < 0 ? 0 : left < 4 ? left : 4);
  return {static_cast<const float*>(f.data) + (count > 0 ? row * f.columns + column : 0), count,
          f.columns % 4 == 0 && reinterpret_cast<uintptr_t>(f.data) % 16 == 0};
}

/// A tile [kOuter][kDepth] or [kDepth][kOuter] in f32, which is rounded as it is read. Rows are padded so that
/// the lanes of a warp read from different banks.
template <int kOuter, int kDepth, bool kKMajor, int kThreads>
struct FloatTile {
  static constexpr int kRows = kKMajor ? kOuter : kDepth, kColumns = kKMajor ? kDepth : kOuter;
  static constexpr int kPitch = kColumns + (kKMajor ? 8 : 4);
  static constexpr int kBytes = kRows * kPitch * 4;
  static constexpr int kChunks = kColumns / 4, kTotal = kRows * kChunks;
  static_assert(kKMajor ? kPitch % 32 == 8 : kPitch % 16 == 4);
  static_assert(kBytes % 16 == 0);

  /// Starts copies. locate(outer, k) gives the FloatChunk of the tile's element (outer, k).
  template <typename F>
  __device__ static void copy(char* tile, F locate) {
#pragma unroll
    for (int i = 0; i < (kTotal + kThreads - 1) / kThreads; i++) {
      const int at = i * kThreads + static_cast<int>(threadIdx.x);
      if (kTotal % kThreads != 0 && at >= kTotal) break;
      const int row = at / kChunks, column = at % kChunks * 4;
      const FloatChunk from = kKMajor ? locate(row, column) : locate(column, row);
      float* const to = reinterpret_cast<float*>(tile) + row * kPitch + column;
      if (from.aligned) {
        cp_async(to, from.data, from.count > 0);
        continue;
      }
#pragma unroll
      for (int e = 0; e < 4; e++) to[e] = e < from.count ? from.data[e] : 0.0f;
    }
  }
  /// b[16,8] of depth from `k` and columns from `outer`, as mma wants it.
  __device__ static void factor(uint32_t (&b)[2], const char* tile, int outer, int k, int lane) {
    const float* const of = reinterpret_cast<const float*>(tile);
    const int n = outer + lane / 4, first = k + lane % 4 * 2;
    if constexpr (kKMajor) {
      const float2 low = *reinterpret_cast<const float2*>(of + n * kPitch + first),
                   high = *reinterpret_cast<const float2*>(of + n * kPitch + first + 8);
      b[0] = round_to_bf16_pair(low.x, low.y), b[1] = round_to_bf16_pair(high.x, high.y);
    } else {
      const float* const at = of + first * kPitch + n;
      b[0] = round_to_bf16_pair(at[0], at[kPitch]);
      b[1] = round_to_bf16_pair(at[8 * kPitch], at[9 * kPitch]);
    }
  }
};

/// Multiplies the chunks of a bf16 tile that the running thread copied, [tokens][features] from (token, feature) on,
/// by their mask.
template <typename Tile>
__device__ void drop_copied(char* tile, const Dropout& d, int64_t tokens, int64_t token, int64_t feature) {
  Tile::each_chunk([&](int, int row, int chunk) {
    if (token + row >= tokens) return;
    uint4* const at = reinterpret_cast<uint4*>(Tile::at(tile, row, chunk));
    const uint4 held = *at;
    const uint32_t pairs[] = {held.x, held.y, held.z, held.w};
    uint32_t dropped[4];
#pragma unroll
    for (int half = 0; half < 2; half++) {
      float factor[4];
      dropout_factors(d, token + row, feature + chunk * kEight + 4 * half, factor);
#pragma unroll
      for (int i = 0; i < 2; i++) {
        const uint32_t pair = pairs[2 * half + i];
        dropped[2 * half + i] = round_to_bf16_pair(__uint_as_float(pair << 16) * factor[2 * i],
                                                   __uint_as_float(pair & 0xffff0000u) * factor[2 * i + 1]);
      }
    }
    *at = make_uint4(dropped[0], dropped[1], dropped[2], dropped[3]);
  });
}

/// A block that shares a tile's sums with others leaves its own, as part `part` of `parts`, in `partial`, where part i lies
/// at place first + i·stride of [kAcross][kThreads] fours. Returns whether it is the last to come; `sums` are then those of
/// all parts, added in order.
template <int kUnroll, int kThreads, int kAcross>
__device__ bool join_parts(float (&sums)[kAcross][4], float* partial, uint32_t* ticket, int64_t first,
                           int64_t stride, int64_t part, int64_t parts) {
  const auto held = [&](int64_t of, int j) {
    return reinterpret_cast<float4*>(partial) + ((first + of * stride) * kAcross + j) * kThreads +
           threadIdx.x;
  };
#pragma unroll
  for (int j = 0; j < kAcross; j++)
    *held(part, j) = make_float4(sums[j][0], sums[j][1], sums[j][2], sums[j][3]);
  if (!last_block(ticket, static_cast<uint32_t>(parts))) return false;
#pragma unroll
  for (int j = 0; j < kAcross; j++) {
    float4 total = *held(0, j);
#pragma unroll kUnroll
    for (int64_t of = 1; of < parts; of++) {
      const float4 next = *held(of, j);
      total = make_float4(total.x + next.x, total.y + next.y, total.z + next.z, total.w + next.w);
    }
    sums[j][0] = total.x, sums[j][1] = total.y, sums[j][2] = total.z, sums[j][3] = total.w;
  }
  return true;
}

}  // namespace steptrain::cuda
