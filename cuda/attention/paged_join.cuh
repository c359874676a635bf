// How several blocks share the keys of a tile and a KV head, and how the one that ends last joins their sums.
#pragma once

#include "cuda/attention/paged_tile.cuh"

namespace steptrain::cuda::paged {

/// How the blocks of a launch divide the keys, and what they leave for the one of a tile and KV head that
/// ends last: [tile][KV head][unit][row].
struct Shares {
  int32_t blocks;     // of a tile and KV head
  int32_t span;       // chunks of a block
  int32_t unit;       // chunks whose sums a block leaves: 1 or kSection
  int32_t units;      // of a row, at most
  int64_t first = 0;  // tile of the launch
  Part* parts = nullptr;
  float* sums = nullptr;  // and the padded head

  __device__ int64_t at(int64_t pair, int32_t unit_index) const {
    return (pair * units + unit_index) * kRows;
  }
};

/// What a block takes. Computed anew by each call, since registers are scarce.
struct BlockPlace {
  int32_t part;
  int64_t pair;  // of the launch
  int32_t kv_head;
  unsigned place;  // of the tile
};
__device__ inline BlockPlace block_of(const Paged& p, const Shares& shares) {
  int64_t block = blockIdx.x;
  forget(block);
  const auto number = static_cast<unsigned>(block), pair = number / static_cast<unsigned>(shares.blocks),
             kv_heads = static_cast<unsigned>(p.heads / p.group);
  return {static_cast<int32_t>(number % static_cast<unsigned>(shares.blocks)), pair,
          static_cast<int32_t>(pair % kv_heads), static_cast<unsigned>(shares.first) + pair / kv_heads};
}

/// Sums of values of two rows, lane / 4 and lane / 4 + 8, in every fourth group of 16 columns from the warp's
/// on.
template <int kSize>
struct Sums {
  static constexpr int kGroups = kSize / 16, kMine = (kGroups + kWarps - 1) / kWarps;
  float value[kMine][2][4] = {};
  Part part[2] = {kNoKeys, kNoKeys};

  /// Empties `other`.
  __device__ void add(Sums& other) {
#pragma unroll
    for (int half = 0; half < 2; half++) {
      const float2 factor = merge(part[half], other.part[half]);
#pragma unroll
      for (int i = 0; i < kMine; i++)
#pragma unroll
        for (int j = 0; j < 2; j++)
#pragma unroll
          for (int e = 2 * half; e < 2 * half + 2; e++)
            value[i][j][e] = fmaf(value[i][j][e], factor.x, other.value[i][j][e] * factor.y);
    }
    other = {};
  }
  /// body(half, column, the two elements from there on)
  template <typename Body>
  __device__ void each(int warp, int lane, Body body) const {
#pragma unroll
    for (int i = 0; i < kMine; i++) {
      if (warp + kWarps * i >= kGroups) break;
#pragma unroll
      for (int j = 0; j < 2; j++)
#pragma unroll
        for (int half = 0; half < 2; half++)
          body(half, (warp + kWarps * i) * 16 + fragment_column(lane, 4 * j),
               make_float2(value[i][j][2 * half], value[i][j][2 * half + 1]));
    }
  }
};

/// What the sums over a section's units, and over sections, are multiplied by.
struct Factors {
  float2 inner[kSection];
  float2 outer;
  float mass;  // of the section
};

/// Joins what the blocks of a tile and a KV head have left, by the arithmetic of Sums::add. kUnits: units of
/// a section.
template <int kSize, int kUnits>
__device__ void combine(bf16* o, const Paged& p, const Shares& shares, const PagedTile& tile, int64_t pair,
                        int32_t kv_head, char* shared) {
  constexpr int kLanes = 16, kTurns = kRows * kLanes / kThreads, kColumns = kSize / 4,
                kItems = (kRows * kColumns + kThreads - 1) / kThreads;
  constexpr int32_t kOfUnit = kSection / kUnits;
  static_assert(kLanes * kRows * sizeof(Factors) <= Layout<kSize>::kBytes);
  Factors* const factors = reinterpret_cast<Factors*>(shared);  // [section of the batch][row]
  const int thread = static_cast<int>(threadIdx.x), lane = thread % kLanes;
  const Chunks chunks = chunks_of(keys_of(p, tile));
  const int32_t first_unit = chunks.first / kOfUnit, last_unit = chunks.last / kOfUnit,
                last_section = chunks.last / kSection;
  const int64_t base = shares.at(pair, 0);
  float4 sums[kItems] = {};
  float mass[kItems] = {};
  float so_far[kTurns];  // the maximum of this thread's rows
  for (float& maximum : so_far) maximum = kMinimum;
  for (int32_t first = chunks.first / kSection; first <= last_section; first += kLanes) {
#pragma unroll
    for (int i = 0; i < kTurns; i++) {
      const int row = thread / kLanes + i * (kThreads / kLanes);
      const int32_t section = first + lane;
      Part parts[kUnits], part = kNoKeys;
      Factors own{};
#pragma unroll
      for (int u = 0; u < kUnits; u++) {
        const int32_t unit = section * kUnits + u;
        parts[u] = kNoKeys;
        if (row < tile.rows && unit >= first_unit && unit <= last_unit)
          parts[u] = shares.parts[base + int64_t{unit} * kRows + row];
      }
#pragma unroll
      for (int u = 0; u < kUnits; u++) own.inner[u] = merge(part, parts[u]);
      float to = part.maximum;  // of all sections up to this one
#pragma unroll
      for (int distance = 1; distance < kLanes; distance *= 2) {
        const float below = __shfl_up_sync(0xffffffffu, to, distance);
        if (lane >= distance) to = fmaxf(to, below);
      }
      to = fmaxf(to, so_far[i]);
      const float below = __shfl_up_sync(0xffffffffu, to, 1);
      const float before = lane == 0 ? so_far[i] : below;
      so_far[i] = __shfl_sync(0xffffffffu, to, thread % kWarp / kLanes * kLanes + kLanes - 1);
      own.outer = make_float2(exp2_approximate(before - to), exp2_approximate(part.maximum - to));
      own.mass = part.mass;
      factors[lane * kRows + row] = own;
    }
    __syncthreads();
    const int32_t sections = last_section - first + 1 < kLanes ? last_section - first + 1 : kLanes;
#pragma unroll
    for (int i = 0; i < kItems; i++) {
      const int row = (thread + i * kThreads) / kColumns, column = (thread + i * kThreads) % kColumns * 4;
      if (row >= tile.rows) break;
      [[maybe_unused]] constexpr int kUnrolled = kUnits == 1 ? 8 : 2;
#pragma unroll kUnrolled
      for (int32_t s = 0; s < sections; s++) {
        const Factors& by = factors[s * kRows + row];
        float4 section{};
#pragma unroll
        for (int u = 0; u < kUnits; u++) {
          const int32_t unit = (first + s) * kUnits + u;
          float4 x{};
          if (unit >= first_unit && unit <= last_unit)
            x = *reinterpret_cast<const float4*>(shares.sums + (base + int64_t{unit} * kRows + row) * kSize +
                                                 column);
          section.x = fmaf(section.x, by.inner[u].x, x.x * by.inner[u].y);
          section.y = fmaf(section.y, by.inner[u].x, x.y * by.inner[u].y);
          section.z = fmaf(section.z, by.inner[u].x, x.z * by.inner[u].y);
          section.w = fmaf(section.w, by.inner[u].x, x.w * by.inner[u].y);
        }
        sums[i].x = fmaf(sums[i].x, by.outer.x, section.x * by.outer.y);
        sums[i].y = fmaf(sums[i].y, by.outer.x, section.y * by.outer.y);
        sums[i].z = fmaf(sums[i].z, by.outer.x, section.z * by.outer.y);
        sums[i].w = fmaf(sums[i].w, by.outer.x, section.w * by.outer.y);
        mass[i] = fmaf(mass[i], by.outer.x, by.mass * by.outer.y);
      }
    }
    __syncthreads();
  }
#pragma unroll
  for (int i = 0; i < kItems; i++) {
    const int row = (thread + i * kThreads) / kColumns, column = (thread + i * kThreads) % kColumns * 4;
    if (row >= tile.rows || column >= p.size) continue;
    const uint64_t first = round_to_bf16_pair(sums[i].x / mass[i], sums[i].y / mass[i]),
                   second = round_to_bf16_pair(sums[i].z / mass[i], sums[i].w / mass[i]);
    *reinterpret_cast<uint64_t*>(o + element_of(p, tile, kv_head, row) + column) = first | second << 32;
  }
}

}  // namespace steptrain::cuda::paged
