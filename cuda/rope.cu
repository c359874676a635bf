// Rotary position embedding of x[T,heads,D] by tables cos, sin f32[P,E], indexed by positions[T]. The first 2·E elements
// of a head rotate by halves as in Hugging Face models: y[e] = x[e]·cos - x[e+E]·sin, y[e+E] = x[e+E]·cos + x[e]·sin;
// those behind them, of a `partial` rotation, stay; inverse rotates by the negative angle, which is also the gradient. y is overwritten and may be x;
// arithmetic in f32, rounded once to storage. One launch;
// a thread takes eight neighbouring elements of a half.
#include "core/error.h"
#include "cuda/elementwise.cuh"
#include "cuda/runtime/families.h"

namespace steptrain::cuda {
namespace {

constexpr int kPositions = 3;  // of the op's inputs

template <typename T>
__global__ void __launch_bounds__(kThreads)
    rope_kernel(const T* x, const float* cosines, const float* sines, const int32_t* positions, T* y,
                int64_t tokens, int heads, int size, int half, int64_t limit, float sign,
                FaultReporter faults, bool wide) {
  const int groups = (half + kEight - 1) / kEight;
  const int64_t task = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const int64_t row = task / groups;  // token and head
  const int64_t t = row / heads;
  if (t >= tokens) return;
  const int64_t position = positions[t];
  if (!index_holds(faults, kPositions, t, position, limit)) return;
  const int e = static_cast<int>(task % groups) * kEight;
  const int count = in_group(e, half);
  float a[kEight], b[kEight], c[kEight], s[kEight];
  const int64_t at = row * size + e;
  load8(x + at, count, wide, a);
  load8(x + at + half, count, wide, b);
  load8(cosines + position * half + e, count, wide, c);
  load8(sines + position * half + e, count, wide, s);
#pragma unroll
  for (int i = 0; i < kEight; i++) {
    const float sine = s[i] * sign, first = a[i];
    a[i] = fmaf(first, c[i], 0.0f - b[i] * sine);
    b[i] = fmaf(b[i], c[i], first * sine);
  }
  store8(y + at, count, wide, a);
  store8(y + at + half, count, wide, b);
  if (e > 0 || y == x) return;
  for (int rest = 2 * half; rest < size; rest++) y[row * size + rest] = x[row * size + rest];
}

void rope(Stream& stream, const Args& args) {
  const auto [x, cosines, sines, positions, y] = args.tensors<5>();
  const int64_t tokens = x[0], heads = x[1], half = cosines[1];
  if (args.i(1) ? x[2] < 2 * half : x[2] != 2 * half)
    throw Error("E_SHAPE", format("rope: head size %lld needs tables of width %lld with two halves, got %lld",
                                  static_cast<long long>(x[2]), static_cast<long long>(x[2] / 2),
                                  static_cast<long long>(half)));
  const int64_t tasks = tokens * heads * ((half + kEight - 1) / kEight);
  by_storage(x.dtype, [&](auto t) {
    using T = decltype(t);
    stream.launch(rope_kernel<T>, (tasks + kThreads - 1) / kThreads, kThreads, 0, x.as<T>(),
                  cosines.as<float>(), sines.as<float>(), positions.as<int32_t>(), y.as<T>(), tokens, heads,
                  x[2], half, cosines[0], args.i(0) ? -1.0f : 1.0f, stream.faults,
                  all_wide({x, cosines, sines, y}, half) && x[2] % kEight == 0);
  });
}

}  // namespace

void register_rope(KernelTable& table) {
  table.set("rope", rope);
}

}  // namespace steptrain::cuda
