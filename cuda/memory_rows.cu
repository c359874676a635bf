// Rows by index: gather_rows y[r] = x[rows[r]], of any dtype; scatter_rows y[rows[r]] = Σ x[r] in order of r, rows that
// no index names are 0; split_halves cuts each row in two, join_halves puts two together. Outputs are `=`. One launch, three for the scatter (cuda/chains.cuh).
#include "cuda/chains.cuh"
#include "cuda/runtime/families.h"

namespace steptrain::cuda {

static __device__ void load8(const uint8_t* p, int n, bool, float (&v)[kEight]) {
#pragma unroll
  for (int i = 0; i < kEight; i++) v[i] = i < n ? p[i] : 0.0f;
}
static __device__ void store8(uint8_t* p, int n, bool, const float (&v)[kEight]) {
#pragma unroll
  for (int i = 0; i < kEight; i++)
    if (i < n) p[i] = static_cast<uint8_t>(v[i]);
}

namespace {

constexpr int kRowsInput = 1;

template <typename T>
__global__ void __launch_bounds__(kThreads)
    gather_kernel(const T* x, const int32_t* rows, T* y, int64_t n, int64_t limit, int64_t width,
                  FaultReporter faults, bool wide) {
  const int64_t groups = (width + kEight - 1) / kEight;
  const int64_t task = int64_t{blockIdx.x} * kThreads + threadIdx.x, r = task / groups;
  if (r >= n) return;
  const int64_t row = rows[r];
  if (!index_holds(faults, kRowsInput, r, row, limit)) return;
  const int64_t h = task % groups * kEight;
  const int count = in_group(h, width);
  float v[kEight];
  load8(x + row * width + h, count, wide, v);
  store8(y + r * width + h, count, wide, v);
}

void gather_rows(Stream& stream, const Args& args) {
  const auto [x, rows, y] = args.tensors<3>();
  const int64_t width = x[1], tasks = rows[0] * ((width + kEight - 1) / kEight);
  const auto gather = [&, &x = x, &rows = rows, &y = y](auto t) {
    using T = decltype(t);
    stream.launch(gather_kernel<T>, (tasks + kThreads - 1) / kThreads, kThreads, 0, x.as<T>(),
                  rows.as<int32_t>(), y.as<T>(), rows[0], x[0], width, stream.faults,
                  all_wide({x, y}, width));
  };
  if (x.dtype == DType::u8) return gather(uint8_t{});
  by_storage(x.dtype, gather);  // i32 moves as f32 does
}

void scatter_rows(Stream& stream, const Args& args) {
  const auto [x, rows, y] = args.tensors<3>();
  const int64_t width = x[1];
  stream.zero(y.data, y.bytes());
  by_storage(x.dtype, [&](auto t) {
    using T = decltype(t);
    sum_chains<false>(stream, rows, kRowsInput, y[0], PlainRows<T>{x.as<T>(), width, all_wide({x}, width)},
                      y.as<T>(), width, all_wide({y}, width));
  });
}

/// Rows of `whole`, each of two rows of `first` and `second`, copied one way or the other.
template <bool kSplits, typename T>
__global__ void __launch_bounds__(kThreads)
    halves_kernel(T* whole, T* first, T* second, int64_t n, int64_t half) {
  const int64_t at = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (at >= n) return;
  const int64_t r = at / half, c = at % half;
  T &left = whole[2 * r * half + c], &right = whole[(2 * r + 1) * half + c];
  if (kSplits) {
    first[at] = left, second[at] = right;
  } else {
    left = first[at], right = second[at];
  }
}

template <bool kSplits>
void halves(const char* op, Stream& stream, const TensorView& whole, const TensorView& first,
            const TensorView& second) {
  const int64_t n = first.numel();
  if (whole[1] != 2 * first[1])
    throw Error("E_SHAPE", format("%s: a row of %lld does not consist of two halves of %lld", op,
                                  static_cast<long long>(whole[1]), static_cast<long long>(first[1])));
  by_storage(first.dtype, [&](auto t) {
    using T = decltype(t);
    stream.launch(halves_kernel<kSplits, T>, (n + kThreads - 1) / kThreads, kThreads, 0, whole.as<T>(),
                  first.as<T>(), second.as<T>(), n, first[1]);
  });
}

void split_halves(Stream& stream, const Args& args) {
  const auto [x, first, second] = args.tensors<3>();
  halves<true>("split_halves", stream, x, first, second);
}

void join_halves(Stream& stream, const Args& args) {
  const auto [first, second, y] = args.tensors<3>();
  halves<false>("join_halves", stream, y, first, second);
}

}  // namespace

void register_memory_rows(KernelTable& table) {
  table.set("gather_rows", gather_rows);
  table.set("scatter_rows", scatter_rows);
  table.set("split_halves", split_halves);
  table.set("join_halves", join_halves);
}

}  // namespace steptrain::cuda
