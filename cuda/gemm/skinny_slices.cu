// u = drop(x)·Aᵀ and v = scale·dy·B (cuda/gemm/skinny.h): few columns, a depth of thousands. With a rank of 16 a row of
// x, 2 bytes an element, is used for 16 multiply-adds an element: reading x is the bound, at any rank up to 64. Both
// factors go through cp.async, b in f32 as it is (through registers a round waited 0.9 µs for it on an H100), and the
// depth is cut into slices, so that there are blocks for every multiprocessor and several rounds under way in each.
//   A block is four warps of 16 rows and one slice: 256 of the depth, or 512 where it has more than 2,048, by the
//   depth alone. A slice is summed in ascending order, the slices of a row are added in order by the block that
//   arrives last. So a row's bits depend on that row alone.
// Dropout is applied in shared memory, by the thread that copied.
#include "cuda/gemm/factor.cuh"
#include "cuda/gemm/skinny.h"
#include "cuda/gemm/skinny_tile.cuh"

namespace steptrain::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kRows = 64;
/// A buffer: 256 bytes of each row at a time where the other factor leaves room for it. With kSmall all of them fit into
/// kEvery.
template <int kColumns, bool kSmall>
struct Buffer {
  static constexpr int kDepth = kColumns <= 32 ? 128 : 64, kStages = (kColumns <= 32 ? 3 : 4) - kSmall;
};
constexpr int kEvery =
    99 << 10;  // bytes that a block may have on every GPU, which 8.6, 8.9 and 12.x do not exceed
constexpr int kShortDepth = 2048, kShortSlice = 256, kLongSlice = 512;

struct Slices {
  int64_t tiles, count, depth;  // of the rows; of the depth, and how much a slice has
  float* partial;
  uint32_t* tickets;
};

template <int kColumns, bool kSmall, Layout kLayout, bool kDropped>
__global__ void __launch_bounds__(kThreads)
    slices_kernel(const __grid_constant__ Narrow p, const __grid_constant__ Slices slices) {
  constexpr int kDepth = Buffer<kColumns, kSmall>::kDepth, kStages = Buffer<kColumns, kSmall>::kStages;
  using X = FactorTile<kRows, kDepth, true, kThreads>;
  using B = FloatTile<kColumns, kDepth, b_k_major(kLayout), kThreads>;
  constexpr int kAcross = kColumns / 8;
  take_turn();
  if (int64_t{blockIdx.x} >= slices.tiles * slices.count)
    return round_others<kThreads>(p, int64_t{blockIdx.x} - slices.tiles * slices.count);
  // The last rows first: they are what the op in front wrote last, and the first ones are then still in the L2 cache
  // when the product that follows begins with them.
  const int64_t tile = slices.tiles - 1 - blockIdx.x / slices.count, slice = blockIdx.x % slices.count;
  const int64_t first_row = tile * kRows, first = slice * slices.depth;
  const int64_t end = first + slices.depth < p.x.columns ? first + slices.depth : p.x.columns;
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  char* const shared = dynamic_shared();
  const auto x_stage = [&](int stage) { return shared + stage * (X::kBytes + B::kBytes); };
  const auto b_stage = [&](int stage) { return x_stage(stage) + X::kBytes; };
  float sums[kAcross][4] = {};

  run_ring<kStages>(
      static_cast<int>((end - first + kDepth - 1) / kDepth),
      [&](int stage, int round) {
        const int64_t depth = first + int64_t{round} * kDepth;
        X::copy(x_stage(stage), p.x, first_row, depth);
        B::copy(b_stage(stage), [&](int outer, int k) {
          const bool own = outer < p.of[0].columns;
          return floats_of(p.of[own ? 0 : 1].b, b_k_major(kLayout), own ? outer : outer - p.of[0].columns,
                           depth + k);
        });
      },
      [&](int stage, int round) {
        if constexpr (kDropped)
          drop_copied<X>(x_stage(stage), p.dropout, p.x.rows, first_row, first + int64_t{round} * kDepth);
      },
      [&](int stage) {
#pragma unroll
        for (int k = 0; k < kDepth; k += kStep) {
          uint32_t a[4];
          load_a<X, true>(a, x_stage(stage), warp * 16, k, lane);
#pragma unroll
          for (int j = 0; j < kAcross; j++) {
            uint32_t b[2];
            B::factor(b, b_stage(stage), 8 * j, k, lane);
            mma(sums[j], a, b[0], b[1]);
          }
        }
      });

  if (slices.count > 1 && !join_parts<8, kThreads>(sums, slices.partial, slices.tickets + tile,
                                                   tile * slices.count, 1, slice, slices.count))
    return;
#pragma unroll
  for (int j = 0; j < kAcross; j++)
#pragma unroll
    for (int i = 0; i < 4; i++) {
      const int64_t row = first_row + warp * 16 + fragment_row(lane, i);
      int64_t column = 8 * j + fragment_column(lane, i);
      const bool own = column < p.of[0].columns;
      const NarrowFactor& f = p.of[own ? 0 : 1];
      if (!own) column -= p.of[0].columns;
      if (row >= p.x.rows || column >= f.columns) continue;
      const float value = p.scale * sums[j][i];
      if (f.out) f.out[row * f.columns + column] = value;
      if (f.rounded)
        f.rounded[row * whole_chunks(f.columns) + column] = from_float<bf16>(f.rounded_scale * value);
    }
  const int rows = static_cast<int>(p.x.rows - first_row < kRows ? p.x.rows - first_row : kRows);
  for (const NarrowFactor& f : p.of) {
    if (!f.rounded) continue;
    const int64_t columns = f.columns, padded = whole_chunks(columns);
    for (int row = static_cast<int>(threadIdx.x); row < rows; row += kThreads)
      for (int64_t column = columns; column < padded; column++)
        f.rounded[(first_row + row) * padded + column] = from_float<bf16>(0.0f);
  }
}

template <int kColumns, bool kSmall, Layout kLayout>
void launch(Stream& stream, const Narrow& p) {
  constexpr int kDepth = Buffer<kColumns, kSmall>::kDepth, kStages = Buffer<kColumns, kSmall>::kStages;
  using X = FactorTile<kRows, kDepth, true, kThreads>;
  using B = FloatTile<kColumns, kDepth, b_k_major(kLayout), kThreads>;
  constexpr int kShared = kStages * (X::kBytes + B::kBytes), kStatic = 64;  // which join_parts uses
  static_assert(!kSmall || kShared + kStatic <= kEvery);
  if constexpr (kShared + kStatic > kEvery) {
    if (kShared + kStatic > stream.hardware.shared_per_block)
      return launch<kColumns, true, kLayout>(stream, p);
  }
  Slices slices{};
  slices.depth = p.x.columns <= kShortDepth ? kShortSlice : kLongSlice;
  slices.tiles = (p.x.rows + kRows - 1) / kRows;
  slices.count = p.x.columns == 0 ? 1 : (p.x.columns + slices.depth - 1) / slices.depth;
  if (slices.count > 1) {
    slices.partial = stream.scratch.take<float>(slices.tiles * slices.count * kRows * kColumns);
    slices.tickets = stream.ticket;
  }
  const int64_t blocks = slices.tiles * slices.count + rounding_blocks<kThreads>(p);
  stream.launch_early({},
                      p.dropped ? slices_kernel<kColumns, kSmall, kLayout, true>
                                : slices_kernel<kColumns, kSmall, kLayout, false>,
                      blocks, kThreads, kShared, p, slices);
}

template <int kColumns>
void launch(Stream& stream, Layout layout, const Narrow& p) {
  layout == Layout::forward ? launch<kColumns, false, Layout::forward>(stream, p)
                            : launch<kColumns, false, Layout::input>(stream, p);
}

}  // namespace

bool takes_narrow(const TensorView& rows, int64_t columns) {
  return readable_async(factor(rows)) && columns <= kMaxNarrow && (rows[0] + kRows - 1) / kRows <= kTickets;
}

void multiply_narrow(Stream& stream, Layout layout, const Narrow& p) {
  const int64_t columns = p.of[0].columns + p.of[1].columns;
  if (columns <= 16) {
    launch<16>(stream, layout, p);
  } else if (columns <= 32) {
    launch<32>(stream, layout, p);
  } else {
    launch<kMaxNarrow>(stream, layout, p);
  }
}

}  // namespace steptrain::cuda
