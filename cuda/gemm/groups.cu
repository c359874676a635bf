// The grouped products (cuda/gemm/groups.h) by the mainloops of the others: a block finds its group and its tile from the
// offsets, and then works as if that group's were the only product. As many blocks start as there can be tiles;
// those for which there is none end.
#include "cuda/gemm/groups.h"

#include "cuda/gemm/product_bf16.cuh"
#include "cuda/gemm/product_f32.cuh"
#include "cuda/gemm/quantized.cuh"
#include "cuda/reduce.cuh"

namespace steptrain::cuda {
namespace {

using portable::Few;
using portable::Large;
using portable::Small;

/// A block's place: a tile of a group, whose rows are `rows` from `begin` on. Of a surplus block `rows` is 0.
struct Place {
  int64_t group = 0, begin = 0, rows = 0, tile = 0;
};

/// Of groups of `total` rows together, where each has `tiles` of them.
__device__ Place place_in_depth(const Groups& groups, int64_t total, int64_t tiles) {
  Place place;
  place.group = blockIdx.x / tiles, place.tile = blockIdx.x % tiles;
  int64_t end;
  if (range_holds(groups.faults, groups.argument, groups.offsets, place.group, groups.count, total,
                  place.begin, end))
    place.rows = end - place.begin;
  return place;
}

/// Where tiles have `tile_rows` rows and `across` lie side by side. Each warp counts for itself: a lane the tiles of
/// neighbouring groups, then a scan of the lanes finds those among which the block's tile is.
__device__ Place place_in_rows(const Groups& groups, int64_t total, int tile_rows, int64_t across) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int64_t each = (groups.count + kWarp - 1) / kWarp;
  Place place;
  const auto tiles_of = [&](int64_t group) -> int64_t {
    int64_t end;
    if (!range_holds(groups.faults, groups.argument, groups.offsets, group, groups.count, total, place.begin,
                     end) ||
        group < groups.first)
      return 0;
    place.rows = end - place.begin;
    return (place.rows + tile_rows - 1) / tile_rows * across;
  };
  int64_t own = 0;
  for (int64_t group = lane * each; group < (lane + 1) * each && group < groups.count; group++)
    own += tiles_of(group);
  int64_t through = own;  // of this lane and those before
#pragma unroll
  for (int distance = 1; distance < kWarp; distance *= 2) {
    const int64_t other = __shfl_up_sync(0xffffffffu, through, distance);
    if (lane >= distance) through += other;
  }
  const uint32_t behind = __ballot_sync(0xffffffffu, through > int64_t{blockIdx.x});
  if (behind == 0) return {};
  const int found = kWarp - __popc(behind);
  place.group = found * each;
  place.tile = int64_t{blockIdx.x} - __shfl_sync(0xffffffffu, through - own, found);
  for (; place.group < groups.count; place.group++) {
    const int64_t tiles = tiles_of(place.group);
    if (place.tile < tiles) return place;
    place.tile -= tiles;
  }
  return {};
}

template <Layout kLayout>
__device__ Place place_of(const Product& all, const Groups& groups, int tile_rows, int tile_columns) {
  const int64_t across = (all.columns + tile_columns - 1) / tile_columns;
  if constexpr (kLayout == Layout::weight) {
    return place_in_depth(groups, all.depth, (all.rows + tile_rows - 1) / tile_rows * across);
  } else {
    return place_in_rows(groups, all.rows, tile_rows, across);
  }
}

__device__ inline const void* element_of(const void* data, DType dtype, int64_t at) {
  return static_cast<const char*>(data) + at * (dtype == DType::bf16 ? 2 : 4);
}
/// f's rows of a group.
__device__ inline Factor rows_of(Factor f, const Place& place) {
  f.data = element_of(f.data, f.dtype, place.begin * f.columns);
  f.rows = place.rows;
  return f;
}
/// The one at `index` of the factors that lie one below the other, each with f's rows.
__device__ inline Factor own_of(Factor f, int64_t index) {
  f.data = element_of(f.data, f.dtype, index * f.rows * f.columns);
  return f;
}

template <Layout kLayout>
__device__ Product product_of(const Product& all, const Groups& groups, const Place& place) {
  Product p = all;
  p.a = rows_of(all.a, place);
  int64_t first_row;
  if constexpr (kLayout == Layout::weight) {
    p.depth = place.rows;
    p.b = rows_of(all.b, place);
    first_row = place.group * all.rows;
  } else {
    p.rows = place.rows;
    p.b = own_of(all.b,
                 static_cast<uint32_t>(place.group - groups.first) % static_cast<uint32_t>(groups.weights));
    const int64_t pair = place.group - groups.bare;
    if (pair < 0) {
      p.rank = 0;
    } else {
      p.lora_a = rows_of(all.lora_a, place), p.lora_b = own_of(all.lora_b, pair);
      if (groups.scales) p.lora_scale = groups.scales[pair];
    }
    first_row = place.begin;
  }
  p.out = const_cast<void*>(element_of(all.out, all.out_dtype, first_row * all.columns));
  if (p.dropped != Dropped::nothing) p.dropout.row_ids += place.begin, p.dropout.positions += place.begin;
  return p;
}

/// The product of the block's group, in shared memory: threads have no registers for all that no constant holds.
template <Layout kLayout>
__device__ const Product& own_product(const Product& all, const Groups& groups, const Place& place) {
  alignas(16) __shared__ char held[sizeof(Product)];
  Product& p = *reinterpret_cast<Product*>(held);
  if (threadIdx.x == 0) p = product_of<kLayout>(all, groups, place);
  __syncthreads();
  return p;
}

template <Layout kLayout, typename Tile, bool kAsync>
__global__ void __launch_bounds__(portable::kThreads<Tile>, kAsync ? Tile::kMinBlocks : Tile::kMinBlocks - 1)
    group_bf16_kernel(const __grid_constant__ Product all, const __grid_constant__ Groups groups) {
  using Loop = portable::Mainloop<kLayout, Tile, kAsync>;
  const Place own = place_of<kLayout>(all, groups, Tile::kRows, Tile::kColumns);
  if (own.rows == 0) return;
  const Product& far = own_product<kLayout>(all, groups, own);
  // What the loop needs, in registers where there are as many: for dy·W sm_80 lacks two, and masks are read by their address.
  constexpr bool kNear = kAsync && kLayout != Layout::input;
  const Product near = kNear ? product_of<kLayout>(all, groups, own) : Product{};
  const Product& p = kNear ? near : far;
  const Loop loop(p, p, dynamic_shared());
  const TilePlace place = tile_place(p, own.tile, Tile::kRows, Tile::kColumns);
  loop.fill(place);
  auto sums = loop.zero(place);
  Loop(far, far, dynamic_shared()).add_lora(place, sums);
  loop.add(place, sums);
  const Product last = far;
  Store::Item<typename Loop::Sums> item(Store{}, last);
  item.add(sums, true);
}

template <Layout kLayout>
__global__ void __launch_bounds__(ordinary::kThreads)
    group_f32_kernel(const __grid_constant__ Product all, const __grid_constant__ Groups groups) {
  const Place own = place_of<kLayout>(all, groups, ordinary::kTile, ordinary::kTile);
  if (own.rows == 0) return;
  const Product& p = own_product<kLayout>(all, groups, own);
  const ordinary::Mainloop<kLayout> loop(p);
  const TilePlace place = tile_place(p, own.tile, ordinary::kTile, ordinary::kTile);
  const ordinary::Sums lora = loop.lora(place);
  ordinary::Sums sums = loop.zero(place);
  loop.add(place, sums);
#pragma unroll
  for (int i = 0; i < ordinary::kRows; i++)
#pragma unroll
    for (int j = 0; j < ordinary::kColumns; j++) sums.v[i][j] += lora.v[i][j];
  const Product last = p;
  Store::Item<ordinary::Sums> item(Store{}, last);
  item.add(sums, true);
}

/// The most tiles there can be: each group with rows has one that is not full, and each tile a row.
int64_t most_tiles(Layout layout, const Product& p, const Groups& groups, int tile_rows, int tile_columns) {
  const int64_t across = (p.columns + tile_columns - 1) / tile_columns;
  if (layout == Layout::weight) return groups.count * ((p.rows + tile_rows - 1) / tile_rows) * across;
  const int64_t down = (p.rows + groups.count * (tile_rows - 1)) / tile_rows;
  return (down < p.rows ? down : p.rows) * across;
}

template <typename Tile, bool kAsync>
void launch(Stream& stream, Layout layout, const Product& p, const Groups& groups) {
  const auto kernel = layout == Layout::forward ? group_bf16_kernel<Layout::forward, Tile, kAsync>
                      : layout == Layout::input ? group_bf16_kernel<Layout::input, Tile, kAsync>
                                                : group_bf16_kernel<Layout::weight, Tile, kAsync>;
  stream.launch(kernel, most_tiles(layout, p, groups, Tile::kRows, Tile::kColumns), portable::kThreads<Tile>,
                Tile::kStages * portable::kStageBytes<Tile>, p, groups);
}

void launch_f32(Stream& stream, Layout layout, const Product& p, const Groups& groups) {
  const auto kernel = layout == Layout::forward ? group_f32_kernel<Layout::forward>
                      : layout == Layout::input ? group_f32_kernel<Layout::input>
                                                : group_f32_kernel<Layout::weight>;
  stream.launch(kernel, most_tiles(layout, p, groups, ordinary::kTile, ordinary::kTile), ordinary::kThreads,
                0, p, groups);
}

constexpr int kDequantizeThreads = 256;

/// Values of the weights of groups with rows, `first` the first weight; a thread takes eight features.
template <typename T>
__global__ void __launch_bounds__(kDequantizeThreads)
    dequantize_groups_kernel(const __grid_constant__ Factor first, const __grid_constant__ Nf4Levels nf4,
                             const __grid_constant__ Groups groups, T* y, bool wide) {
  __shared__ float levels[16];
  if (threadIdx.x < 16) levels[threadIdx.x] = nf4.v[threadIdx.x];
  __syncthreads();
  const int64_t eights = (first.columns + kEight - 1) / kEight;
  const int64_t blocks = (first.rows * eights + kDequantizeThreads - 1) / kDequantizeThreads;
  const int64_t weight = blockIdx.x / blocks;
  bool has_rows = false;
  for (int64_t group = weight; group < groups.count; group += groups.weights)
    if (groups.offsets[group] != groups.offsets[group + 1]) has_rows = true;
  if (!has_rows) return;
  const int64_t at = blockIdx.x % blocks * kDequantizeThreads + threadIdx.x, row = at / eights;
  if (row >= first.rows) return;
  Factor w = first;
  w.data = static_cast<const char*>(first.data) + weight * first.parts.bytes;
  const int64_t column = at % eights * kEight;
  float v[kEight];
  quantized_values(w, load_quantized(w, row, column), levels, v);
  store8(y + (weight * first.rows + row) * first.columns + column, in_group(column, first.columns), wide, v);
}

}  // namespace

void multiply_groups(Stream& stream, DType activations, Layout layout, Product p, const Groups& groups) {
  if (groups.count == 0 || p.rows == 0 || p.columns == 0) return;
  const bool in_tiles = activations == DType::bf16;
  const Loading loading = in_tiles ? loading_of(stream, p) : Loading::registers;
  if (loading != Loading::registers) round_factors(stream, Loading::cp_async, p);
  if (layout != Layout::weight) p.b.rows /= groups.weights;
  if (p.rank > 0) p.lora_b.rows /= groups.count - groups.bare;
  if (!in_tiles) return launch_f32(stream, layout, p, groups);
  if (loading == Loading::registers) return launch<Small, false>(stream, layout, p, groups);
  // By the rows of a group on average.
  const int64_t rows = layout == Layout::weight ? p.rows : (p.rows + groups.count - 1) / groups.count;
  if (rows <= Few::kRows || p.columns <= Few::kColumns) {
    launch<Few, true>(stream, layout, p, groups);
  } else if (rows >= Large::kRows && p.columns >= Large::kColumns) {
    launch<Large, true>(stream, layout, p, groups);
  } else {
    launch<Small, true>(stream, layout, p, groups);
  }
}

Factor group_weights(Stream& stream, DType activations, const TensorView& w, const Groups& groups) {
  Factor all{w.data, w.dtype, w[0] * w[1], w[2]};
  if (w.format == Format::none || all.rows == 0 || all.columns == 0) return all;
  Factor first = all;
  first.rows = w[1], first.format = w.format, first.parts = QuantizedParts(w.format, w[1], w[2]);
  const int64_t eights = (w[2] + kEight - 1) / kEight;
  const int64_t blocks = (w[1] * eights + kDequantizeThreads - 1) / kDequantizeThreads;
  by_storage(activations, [&](auto t) {
    using T = decltype(t);
    T* const values = stream.scratch.take<T>(all.rows * all.columns);
    stream.launch(dequantize_groups_kernel<T>, groups.weights * blocks, kDequantizeThreads, 0, first,
                  nf4_levels(), groups, values, w[2] % kEight == 0);
    all.data = values;
  });
  all.dtype = activations;
  return all;
}

}  // namespace steptrain::cuda
