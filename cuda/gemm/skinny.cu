// u = drop(x)·Aᵀ and v = scale·dy·B (cuda/gemm/skinny.h): few columns, a depth of thousands. A block of eight
// warps computes all columns of kRows rows, 64 of the depth at a time through a ring of four buffers. Two
// groups of warps take half of the rows each; of the four warps of a group, warp s takes step s of the four
// steps of 16 in each buffer. Their sums are added in order of s at the end, whatever the number of rows.
//   Tall  128 rows, 18 to 24 KiB a buffer; where there are enough rows for a block on every multiprocessor
//   Flat   32 rows, 6 to 12 KiB a buffer; else
// cp.async loads x where it is aligned and nothing is dropped; otherwise x goes through registers, as b
// always does. With a rank of 16 a row of x, 2 bytes an element, is used for 16 multiply-adds an element:
// reading x is the bound, at any rank up to 64.
#include "cuda/gemm/factor.cuh"
#include "cuda/gemm/skinny.h"
#include "cuda/gemm/skinny_tile.cuh"

namespace steptrain::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kDepth = 64;
constexpr int kStages = 4;
constexpr int kSlices = kDepth / kStep;  // warps that share rows
constexpr int kGroups = kThreads / 32 / kSlices;
constexpr int kTall = 128, kFlat = 32;

template <int kRows, int kColumns, Layout kLayout>
__global__ void __launch_bounds__(kThreads) narrow_kernel(const __grid_constant__ Narrow p) {
  constexpr bool kKMajor = b_k_major(kLayout);
  using X = FactorTile<kRows, kDepth, true, kThreads>;
  using B = FactorTile<kColumns, kDepth, kKMajor, kThreads>;
  constexpr int kDown = kRows / kGroups / 16, kAcross = kColumns / 8;
  extern __shared__ uint4 shared[];
  const int64_t tiles = (p.x.rows + kRows - 1) / kRows;
  if (int64_t{blockIdx.x} >= tiles) return round_others<kThreads>(p, int64_t{blockIdx.x} - tiles);

  const auto x_stage = [](int stage) {
    return reinterpret_cast<char*>(shared) + stage * (X::kBytes + B::kBytes);
  };
  const auto b_stage = [&](int stage) { return x_stage(stage) + X::kBytes; };
  const int64_t first_row = int64_t{blockIdx.x} * kRows;
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int slice = warp % kSlices, group_row = warp / kSlices * (kRows / kGroups);
  const Dropout* const dropout = p.dropped ? &p.dropout : nullptr;
  float sums[kDown][kAcross][4] = {};

  struct Fetched {
    typename X::Fetched x;
    typename B::Fetched b;
  };
  run_ring<kStages>(
      static_cast<int>((p.x.columns + kDepth - 1) / kDepth),
      [&](int stage, int round) {
        if (p.async) X::copy(x_stage(stage), p.x, first_row, int64_t{round} * kDepth);
      },
      [&](int round) {
        Fetched held = {};
        const int64_t depth = int64_t{round} * kDepth;
        if (!p.async) held.x = X::load(p.x, dropout, first_row, depth);
        held.b = B::load([&](int row, int chunk, float(&v)[kEight]) {
          if constexpr (kKMajor) {
            const bool first = row < p.of[0].columns;
            fetch(first ? p.of[0].b : p.of[1].b, first ? row : row - p.of[0].columns, depth + chunk * kEight,
                  v);
          } else {
            fetch(p.of[0].b, depth + row, chunk * kEight, v);
          }
        });
        return held;
      },
      [&](int stage, const Fetched& held) {
        if (!p.async) X::store(x_stage(stage), held.x);
        B::store(b_stage(stage), held.b);
      },
      [&](int stage) {
        uint32_t b[kAcross / 2][4];
#pragma unroll
        for (int j = 0; j < kAcross / 2; j++)
          load_b<B, kKMajor>(b[j], b_stage(stage), 16 * j, slice * kStep, lane);
#pragma unroll
        for (int i = 0; i < kDown; i++) {
          uint32_t a[4];
          load_a<X, true>(a, x_stage(stage), group_row + 16 * i, slice * kStep, lane);
#pragma unroll
          for (int j = 0; j < kAcross; j++) mma(sums[i][j], a, b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1]);
        }
      });

  // The slices add their sums one after another, in the memory of the ring.
  constexpr int kStride = kColumns + 8;
  static_assert(kRows * kStride * 4 <= kStages * (X::kBytes + B::kBytes));
  float* const totals = reinterpret_cast<float*>(shared);
  cp_async_wait<0>();
  __syncthreads();
  for (int turn = 0; turn < kSlices; turn++) {
    if (slice == turn) {
#pragma unroll
      for (int i = 0; i < kDown; i++)
#pragma unroll
        for (int j = 0; j < kAcross; j++)
#pragma unroll
          for (int half = 0; half < 2; half++) {
            const int row = group_row + 16 * i + fragment_row(lane, 2 * half),
                      column = fragment_column(lane, 4 * j);
            float2* const total = reinterpret_cast<float2*>(totals + row * kStride + column);
            const float2 before = turn == 0 ? make_float2(0, 0) : *total;
            *total = make_float2(before.x + sums[i][j][2 * half], before.y + sums[i][j][2 * half + 1]);
          }
    }
    __syncthreads();
  }

  const int rows = static_cast<int>(p.x.rows - first_row < kRows ? p.x.rows - first_row : kRows);
  int first_column = 0;
  for (const NarrowFactor& f : p.of) {
    const int columns = static_cast<int>(f.columns), padded = static_cast<int>(whole_chunks(columns));
    for (int i = static_cast<int>(threadIdx.x); i < rows * padded; i += kThreads) {
      const int row = i / padded, column = i % padded;
      const bool inside = column < columns;
      const float value = inside ? p.scale * totals[row * kStride + first_column + column] : 0.0f;
      if (f.out && inside) f.out[(first_row + row) * columns + column] = value;
      if (f.rounded) f.rounded[first_row * padded + i] = from_float<bf16>(f.rounded_scale * value);
    }
    first_column += columns;
  }
}

template <int kRows, int kColumns>
void launch(Stream& stream, Layout layout, const Narrow& p) {
  const auto kernel = layout == Layout::forward ? narrow_kernel<kRows, kColumns, Layout::forward>
                                                : narrow_kernel<kRows, kColumns, Layout::input>;
  int64_t blocks = (p.x.rows + kRows - 1) / kRows;
  blocks += rounding_blocks<kThreads>(p);
  stream.launch(kernel, blocks, kThreads, kStages * (kRows + kColumns) * kDepth * 2, p);
}

template <int kColumns>
void launch(Stream& stream, Layout layout, const Narrow& p) {
  if ((p.x.rows + kTall - 1) / kTall >= stream.hardware.multiprocessors) {
    launch<kTall, kColumns>(stream, layout, p);
  } else {
    launch<kFlat, kColumns>(stream, layout, p);
  }
}

}  // namespace

void multiply_narrow(Stream& stream, Layout layout, Narrow p) {
  if (stream.hardware.choice.takes(Successor::lora) && multiply_in_slices(stream, layout, p)) return;
  p.async = !p.dropped && readable_async(p.x);
  const int64_t columns = p.of[0].columns + p.of[1].columns;
  if (columns <= 16) return launch<16>(stream, layout, p);
  if (columns <= 32) return launch<32>(stream, layout, p);
  launch<kMaxNarrow>(stream, layout, p);
}

}  // namespace steptrain::cuda
