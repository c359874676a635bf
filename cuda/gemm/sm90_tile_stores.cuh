// How Hopper's products (cuda/gemm/sm90_tiles.cuh) end: from the sums of a tile in a consumer's registers to outputs in
// memory, in boxes that TMA stores or, where it cannot, by the epilogue.
#pragma once

#include "cuda/gemm/linear_swiglu.cuh"
#include "cuda/gemm/sm90_tile_ring.cuh"

namespace steptrain::cuda {
namespace hopper {

/// Adds the bias to sums whose pairs of columns are inside p or outside it.
template <typename T, typename Sums>
__device__ void add_bias(const Product& p, Sums& sums) {
  const T* const bias = static_cast<const T*>(p.bias);
#pragma unroll
  for (int pair = 0; pair < Sums::kPairs; pair++) {
    const int64_t column = sums.column(pair);
    if (column >= p.columns) continue;
#pragma unroll
    for (int e = 0; e < 2; e++) {
      const float b = to_float(bias[column + e]);
      sums.at(0, pair, e) += b;
      sums.at(1, pair, e) += b;
    }
  }
}

/// What Store does before it rounds, for bf16 outputs that TMA stores.
template <typename Sums>
__device__ void finish_in_place(const Product& p, Sums& sums) {
  if (p.scale != 1) {
#pragma unroll
    for (float& v : sums.v) v *= p.scale;
  }
  if (p.bias) p.bias_dtype == DType::bf16 ? add_bias<bf16>(p, sums) : add_bias<float>(p, sums);
  if (!p.residual) return;
#pragma unroll
  for (int i = 0; i < 2; i++) {
    const int64_t row = sums.row(i);
    const auto* const from = static_cast<const bf16*>(p.residual) + row * p.columns;
#pragma unroll
    for (int pair = 0; pair < Sums::kPairs; pair++) {
      const int64_t column = sums.column(pair);
      if (row >= p.rows || column >= p.columns) continue;
      const uint32_t held = *reinterpret_cast<const uint32_t*>(from + column);
      sums.at(i, pair, 0) = stored<bf16>(sums.at(i, pair, 0)) + __uint_as_float(held << 16);
      sums.at(i, pair, 1) = stored<bf16>(sums.at(i, pair, 1)) + __uint_as_float(held & 0xffff0000u);
    }
  }
}

/// out += scale · sums, in f32 and whole pairs.
template <typename Sums>
__device__ void accumulate_pairs(const Product& p, const Sums& sums_of) {
  Sums& sums = const_cast<Sums&>(sums_of);
#pragma unroll
  for (int i = 0; i < 2; i++) {
    const int64_t row = sums.row(i);
    float* const to = static_cast<float*>(p.out) + row * p.columns;
#pragma unroll
    for (int pair = 0; pair < Sums::kPairs; pair++) {
      const int64_t column = sums.column(pair);
      if (row >= p.rows || column >= p.columns) continue;
      const float2 held = *reinterpret_cast<const float2*>(to + column);
      store_pair(to + column, p.scale * sums.at(i, pair, 0) + held.x, p.scale * sums.at(i, pair, 1) + held.y);
    }
  }
}

/// The boxes of a consumer's outputs, 64 rows by 64 columns, which take turns.
template <int kBoxes>
struct Outbox {
  char* buffer;
  int id;  // of the consumer's named barrier
  int turn = 0;

  /// Stores a box to (row, column) of `out`. pair(i, j) is two rounded neighbours, of the thread's row i and pair j of 8.
  template <typename Pair>
  __device__ void send(const CUtensorMap* out, int32_t row, int32_t column, Pair pair) {
    const int lane = static_cast<int>(threadIdx.x) % 32,
              warp_row = static_cast<int>(threadIdx.x) % 128 / 32 * 16;
    const bool sends = threadIdx.x % 128 == 0;
    char* const to = buffer + turn * kStoreBytes;
    turn = turn + 1 < kBoxes ? turn + 1 : 0;
    if (sends) tma_store_wait_read<kBoxes - 1>();
    warpgroup_barrier(id);
#pragma unroll
    for (int j = 0; j < 8; j += 2) {
      const uint32_t values[] = {pair(0, j), pair(1, j), pair(0, j + 1), pair(1, j + 1)};
      // The lane's row and chunk of 16 bytes; chunks are permuted as in TMA's 128-byte swizzle.
      const int r = warp_row + lane % 16, chunk = j + lane / 16;
      stmatrix(to + r * 128 + (chunk ^ r % 8) * 16, values);
    }
    fence_proxy_async();
    warpgroup_barrier(id);
    if (sends) {
      tma_store(out, row, column, to);
      tma_store_commit();
    }
  }
};

/// Sends gate, up and y = silu(gate)·up, as StoreSwiglu rounds them; gate and up where they are asked for.
template <typename Sums, typename Box>
__device__ void send_swiglu(const TwinTileMaps& maps, bool gate, bool up, Sums& sums, Box& outbox,
                            int32_t row, int32_t column) {
  constexpr int kHalf = Sums::kPairs / 2;
#pragma unroll
  for (int box = 0; box < kHalf / 8; box++) {
    const auto rounded = [&](int first) {
      return [&sums, first](int i, int j) {
        return round_to_bf16_pair(sums.at(i, first + j, 0), sums.at(i, first + j, 1));
      };
    };
    const int32_t at = column + 64 * box;
    if (gate) outbox.send(&maps.out, row, at, rounded(8 * box));
    if (up) outbox.send(&maps.twin_out, row, at, rounded(kHalf + 8 * box));
    outbox.send(&maps.y, row, at, [&](int i, int j) {
      float y[2];
#pragma unroll
      for (int e = 0; e < 2; e++)
        y[e] = swiglu_value(stored<bf16>(sums.at(i, 8 * box + j, e)),
                            stored<bf16>(sums.at(i, kHalf + 8 * box + j, e)));
      return round_to_bf16_pair(y[0], y[1]);
    });
  }
}

/// Finishes a consumer's sums of a tile and stores them: by TMA where it can.
template <typename Epilogue, typename Maps, typename Sums, typename Box>
__device__ void store_sums(const Product& p, const Maps& maps, const Epilogue& epilogue, Sums& sums,
                           Box& outbox) {
  const auto row = static_cast<int32_t>(sums.tile.row) + (outbox.id - 1) * kGroupRows,
             column = static_cast<int32_t>(sums.tile.column);
  if (maps.sends) {
    if constexpr (kTwin<Epilogue>) {
      send_swiglu(maps, p.out != nullptr, epilogue.twin.out != nullptr, sums, outbox, row, column);
    } else {
      finish_in_place(p, sums);
#pragma unroll
      for (int box = 0; box < Sums::kPairs / 8; box++)
        outbox.send(&maps.out, row, column + 64 * box, [&](int i, int j) {
          return round_to_bf16_pair(sums.at(i, 8 * box + j, 0), sums.at(i, 8 * box + j, 1));
        });
    }
    return;
  }
  typename Epilogue::template Item<Sums> item(epilogue, p);
  if constexpr (!kTwin<Epilogue>) {
    if (p.accumulate && p.out_dtype == DType::f32 && item.paired && !p.bias) return accumulate_pairs(p, sums);
  }
  item.add(sums, true);
}

}  // namespace hopper
}  // namespace steptrain::cuda
