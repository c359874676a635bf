// The kernels of stacks (cuda/gemm/stack.h). A pair is copied into rows of a and columns of b. In a product a warp
// computes one rank of a token, then a thread one output of a token. The bound is reading A and B for every
// token: little beside the frozen weight, as long as a step has few rows.
#include "core/error.h"
#include "cuda/convert.h"
#include "cuda/gemm/stack.h"
#include "cuda/storage.cuh"

namespace steptrain::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarp = 32;

/// to[row + r][column + c] = from[r][c].
template <typename T>
__global__ void __launch_bounds__(kThreads) place_kernel(const float* from, int64_t rows, int64_t columns,
                                                         T* to, int64_t stride, int64_t row, int64_t column) {
  const int64_t at = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (at >= rows * columns) return;
  to[(row + at / columns) * stride + column + at % columns] = from_float<T>(from[at]);
}

struct Ranks {
  const int32_t *adapter, *ranks;
  int64_t adapters, limit;         // limit: ranks of the stack
  int adapter_input, ranks_input;  // for faults
  FaultReporter faults;

  /// The ranks of token t's adapter g: none where `last` is not above `first`.
  __device__ void of(int64_t t, int64_t& g, int64_t& first, int64_t& last) const {
    g = adapter[t], first = last = 0;
    if (g == -1) return;
    if (g < 0 || g >= adapters) return report(faults, FaultKind::slot, adapter_input, t, g, adapters);
    const int64_t from = ranks[2 * g], to = ranks[2 * g + 1];
    if (from < 0 || to < from || to > limit)
      return report(faults, FaultKind::span, ranks_input, g, from, limit, to);
    first = from, last = to;
  }
};

/// low[t][j] = x[t]·a[first + j], rounded as T would hold it. A warp per rank; lanes take every 32nd element and
/// are added by halves.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    low_kernel(const T* x, const T* a, Ranks ranks, float* low, int64_t tokens, int64_t depth) {
  const int64_t warp = (int64_t{blockIdx.x} * kThreads + threadIdx.x) / kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int64_t t = warp / ranks.limit, j = warp % ranks.limit;
  if (t >= tokens) return;
  int64_t g, first, last;
  ranks.of(t, g, first, last);
  if (first + j >= last) return;
  const T *row = x + t * depth, *column = a + (first + j) * depth;
  float sum = 0;
  for (int64_t k = lane; k < depth; k += kWarp) sum = fmaf(to_float(row[k]), to_float(column[k]), sum);
#pragma unroll
  for (int distance = kWarp / 2; distance > 0; distance /= 2) sum += __shfl_xor_sync(~0u, sum, distance);
  if (lane == 0) low[t * ranks.limit + j] = stored<T>(sum);
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    spread_kernel(const float* low, const T* b, const float* scales, Ranks ranks, float* out, int64_t tokens,
                  int64_t columns) {
  const int64_t at = int64_t{blockIdx.x} * kThreads + threadIdx.x, t = at / columns, n = at % columns;
  if (t >= tokens) return;
  int64_t g, first, last;
  ranks.of(t, g, first, last);
  float sum = 0;
  for (int64_t j = first; j < last; j++)
    sum = fmaf(low[t * ranks.limit + j - first], to_float(b[n * ranks.limit + j]), sum);
  out[at] = last > first ? scales[g] * sum : 0.0f;
}

template <typename T>
void multiply(Stream& stream, const TensorView& x, const Stack& stack, float* out) {
  const int64_t tokens = x[0], limit = stack.a[0], columns = stack.b[0];
  const Ranks ranks{stack.adapter.as<const int32_t>(),
                    stack.ranks.as<const int32_t>(),
                    stack.ranks[0],
                    limit,
                    stack.adapter_input,
                    stack.ranks_input,
                    stream.faults};
  float* const low = stream.scratch.take<float>(tokens * limit);
  stream.launch(low_kernel<T>, (tokens * limit * kWarp + kThreads - 1) / kThreads, kThreads, 0,
                x.as<const T>(), stack.a.as<const T>(), ranks, low, tokens, x[1]);
  stream.launch(spread_kernel<T>, (tokens * columns + kThreads - 1) / kThreads, kThreads, 0,
                static_cast<const float*>(low), stack.b.as<const T>(), stack.scales.as<const float>(), ranks,
                out, tokens, columns);
}

template <typename T>
void place(Stream& stream, const TensorView& from, const TensorView& to, int64_t row, int64_t column) {
  stream.launch(place_kernel<T>, (from.numel() + kThreads - 1) / kThreads, kThreads, 0,
                from.as<const float>(), from[0], from[1], to.as<T>(), to[1], row, column);
}

}  // namespace

void check_stack(const char* op, const char* side, const Stack& stack, DType dtype) {
  const auto& [a, b, adapter, ranks, scales, adapter_input, ranks_input] = stack;
  const bool all = a && b && adapter && ranks && scales;
  if (!all && (a || b || adapter || ranks || scales))
    throw Error("E_SHAPE", format("%s: %sstack_a, %sstack_b, adapter, %sranks and %sscales come together", op,
                                  side, side, side, side));
  if (!all) return;
  if (a.dtype != dtype || b.dtype != dtype)
    throw Error("E_DTYPE", format("%s: a stack is packed, in the dtype of x (%s)", op, name_of(dtype)));
}

void multiply_stack(Stream& stream, const TensorView& x, const Stack& stack, float* out) {
  x.dtype == DType::bf16 ? multiply<bf16>(stream, x, stack, out) : multiply<float>(stream, x, stack, out);
}

TensorView begin_stack(Stream& stream, const TensorView& x, const Stack& stack, Product& product,
                       const TensorView& y) {
  TensorView sum = y;
  if (stack) {
    sum.dtype = DType::f32;
    if (x.dtype == DType::bf16) sum.data = stream.scratch.take<float>(y.numel());
    multiply_stack(stream, x, stack, sum.as<float>());
  }
  set_output(product, sum.data, sum.dtype, static_cast<bool>(stack));
  return sum;
}

void finish_stack(Stream& stream, const TensorView& sum, const TensorView& y) {
  if (sum.data != y.data) convert(stream, sum, y);
}

void multiply_with_stack(Stream& stream, const TensorView& x, const Stack& stack, Product product,
                         const TensorView& y) {
  const TensorView sum = begin_stack(stream, x, stack, product, y);
  multiply(stream, x.dtype, Layout::forward, product);
  finish_stack(stream, sum, y);
}

void place_pair(Stream& stream, const TensorView& a, const TensorView& b, const TensorView& stack_a,
                const TensorView& stack_b, int64_t first) {
  const auto place_as = stack_a.dtype == DType::bf16 ? place<bf16> : place<float>;
  place_as(stream, a, stack_a, first, 0);
  place_as(stream, b, stack_b, 0, first);
}

}  // namespace steptrain::cuda
