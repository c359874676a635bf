// Moves and combines tensors of any shape. All outputs are `=` but axpy, which is `+=`. Arithmetic is f32,
// rounded once on the store: the bits are those of the CPU. One launch each; a thread takes eight
// neighbouring elements. Rows by index: cuda/memory_rows.cu.
#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "cuda/convert.h"
#include "cuda/elementwise.cuh"
#include "cuda/reduce.cuh"
#include "cuda/runtime/families.h"

namespace steptrain::cuda {
namespace {

/// y[i] = body(x[i], y[i]) for i < n; y is read only where the body uses it.
template <typename X, typename Y, typename F>
__global__ void map_kernel(const X* x, Y* y, int64_t n, bool wide, F body) {
  const int64_t at = (int64_t{blockIdx.x} * kThreads + threadIdx.x) * kEight;
  if (at >= n) return;
  const int count = in_group(at, n);
  float a[kEight], b[kEight];
  load8(x + at, count, wide, a);
  if constexpr (F::kReadsOutput) load8(y + at, count, wide, b);
#pragma unroll
  for (int i = 0; i < kEight; i++) a[i] = body(a[i], F::kReadsOutput ? b[i] : 0.0f);
  store8(y + at, count, wide, a);
}

struct Identity {
  static constexpr bool kReadsOutput = false;
  __device__ float operator()(float x, float) const { return x; }
};
struct Scale {
  static constexpr bool kReadsOutput = false;
  float factor;
  __device__ float operator()(float x, float) const { return x * factor; }
};
struct MultiplyAdd {
  static constexpr bool kReadsOutput = true;
  float factor;
  __device__ float operator()(float x, float y) const { return fmaf(factor, x, y); }
};

struct Add {
  __device__ void operator()(const float (&in)[2], float (&out)[1]) const { out[0] = in[0] + in[1]; }
};

template <typename T>
__global__ void fill_kernel(T* x, int64_t n, T value) {
  const int64_t block = int64_t{blockIdx.x} * kThreads * kEight;
#pragma unroll
  for (int i = 0; i < kEight; i++) {
    const int64_t at = block + i * kThreads + threadIdx.x;
    if (at < n) x[at] = value;
  }
}

template <typename T>
__global__ void decode_kernel(const uint8_t* bytes, T* y, int64_t n) {
  const int64_t block = int64_t{blockIdx.x} * kThreads * kEight;
#pragma unroll
  for (int i = 0; i < kEight; i++) {
    const int64_t at = block + i * kThreads + threadIdx.x;
    if (at < n)
      y[at] = from_float<T>(half_to_float(bytes[2 * at] | static_cast<uint32_t>(bytes[2 * at + 1]) << 8));
  }
}

constexpr int64_t kSpan = 65'536;  // elements of one partial result of `finite`

struct Seen {
  double bad;
  float largest;
};

/// stats: the largest finite |x| and the number of other elements. A block takes a span; the last one adds
/// the partial results in index order.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    finite_kernel(const T* x, int64_t n, Seen* partial, float* stats, uint32_t* ticket, bool wide) {
  const int64_t begin = int64_t{blockIdx.x} * kSpan, end = begin + kSpan < n ? begin + kSpan : n;
  float largest = 0, bad = 0;
  for (int64_t at = begin + int64_t{threadIdx.x} * kEight; at < end; at += int64_t{kThreads} * kEight) {
    const int count = in_group(at, end);
    float v[kEight];
    load8(x + at, count, wide, v);
#pragma unroll
    for (int i = 0; i < kEight; i++) {
      const float size = fabsf(v[i]);
      const bool finite = size < INFINITY;
      if (finite && size > largest) largest = size;
      if (!finite) bad += 1;
    }
  }
  const double bad_of_block = block_sum(static_cast<double>(bad));
  largest = block_max(largest);
  if (threadIdx.x == 0) partial[blockIdx.x] = {bad_of_block, largest};
  if (!last_block(ticket)) return;
  double total = 0;
  largest = 0;
  for (unsigned i = threadIdx.x; i < gridDim.x; i += kThreads) {
    total += partial[i].bad;
    if (partial[i].largest > largest) largest = partial[i].largest;
  }
  total = block_sum(total);
  largest = block_max(largest);
  if (threadIdx.x != 0) return;
  stats[0] = largest;
  stats[1] = static_cast<float>(total);
}

void copy(Stream& stream, const Args& args) {
  const auto [x, y] = args.tensors<2>();
  stream.copy(y.data, x.data, x.bytes());
}

void cast(Stream& stream, const Args& args) {
  const auto [x, y] = args.tensors<2>();
  convert(stream, x, y);
}

void fill(Stream& stream, const Args& args) {
  const TensorView& x = args.tensor[0];
  const double value = args.d(0);
  const auto with = [&](auto element) {
    using T = decltype(element);
    stream.launch(fill_kernel<T>, blocks_for(x.numel()), kThreads, 0, x.as<T>(), x.numel(), element);
  };
  const auto integer = [&](double low, double high) {
    if (!(value >= low && value <= high) || value != std::nearbyint(value))
      throw Error("E_RANGE", format("fill: value %g does not fit into %s", value, name_of(x.dtype)));
    return value;
  };
  switch (x.dtype) {
    case DType::f32:
      return with(static_cast<float>(value));
    case DType::bf16:
      return with(host_bf16(static_cast<float>(value)));
    case DType::i32:
      return with(static_cast<int32_t>(integer(-2147483648.0, 2147483647.0)));
    case DType::u8:
      return with(static_cast<uint8_t>(integer(0, 255)));
  }
}

void add(Stream& stream, const Args& args) {
  const auto [x, y, z] = args.tensors<3>();
  by_storage(x.dtype, [&](auto t) {
    using T = decltype(t);
    elementwise(stream, Operands<T, 2, 1>{{x.as<T>(), y.as<T>()}, {z.as<T>()}}, x.numel(),
                all_wide({x, y, z}), Add{});
  });
}

void scale(Stream& stream, const Args& args) {
  const auto [x, y] = args.tensors<2>();
  by_storage(x.dtype, [&](auto t) {
    using T = decltype(t);
    stream.launch(map_kernel<T, T, Scale>, blocks_for(x.numel()), kThreads, 0, x.as<T>(), y.as<T>(),
                  x.numel(), all_wide({x, y}), Scale{args.f(0)});
  });
}

void axpy(Stream& stream, const Args& args) {
  const auto [y, x] = args.tensors<2>();
  by_storage(x.dtype, [&](auto tx) {
    by_storage(y.dtype, [&](auto ty) {
      using X = decltype(tx);
      using Y = decltype(ty);
      stream.launch(map_kernel<X, Y, MultiplyAdd>, blocks_for(x.numel()), kThreads, 0, x.as<X>(), y.as<Y>(),
                    x.numel(), all_wide({x, y}), MultiplyAdd{args.f(0)});
    });
  });
}

void decode_f16(Stream& stream, const Args& args) {
  const auto [x, y] = args.tensors<2>();
  const int64_t n = y.numel();
  if (x.numel() != 2 * n)
    throw Error("E_SHAPE", format("decode_f16: x has %lld bytes, but %lld x %lld halves need %lld",
                                  static_cast<long long>(x.numel()), static_cast<long long>(y[0]),
                                  static_cast<long long>(y[1]), static_cast<long long>(2 * n)));
  by_storage(y.dtype, [&](auto t) {
    using T = decltype(t);
    stream.launch(decode_kernel<T>, blocks_for(n), kThreads, 0, x.as<uint8_t>(), y.as<T>(), n);
  });
}

void finite(Stream& stream, const Args& args) {
  const auto [x, stats] = args.tensors<2>();
  const int64_t n = x.numel(), blocks = std::max<int64_t>(1, (n + kSpan - 1) / kSpan);
  Seen* const partial = stream.scratch.take<Seen>(blocks);
  by_storage(x.dtype, [&](auto t) {
    using T = decltype(t);
    stream.launch(finite_kernel<T>, blocks, kThreads, 0, x.as<T>(), n, partial, stats.as<float>(),
                  stream.ticket, all_wide({x}));
  });
}

}  // namespace

void convert(Stream& stream, const TensorView& x, const TensorView& y) {
  if (x.dtype == y.dtype) return stream.copy(y.data, x.data, x.bytes());
  by_storage(x.dtype, [&](auto tx) {
    by_storage(y.dtype, [&](auto ty) {
      using X = decltype(tx);
      using Y = decltype(ty);
      stream.launch(map_kernel<X, Y, Identity>, blocks_for(x.numel()), kThreads, 0, x.as<X>(), y.as<Y>(),
                    x.numel(), all_wide({x, y}), Identity{});
    });
  });
}

void register_memory(KernelTable& table) {
  table.set("copy", copy);
  table.set("cast", cast);
  table.set("fill", fill);
  table.set("add", add);
  table.set("scale", scale);
  table.set("axpy", axpy);
  table.set("decode_f16", decode_f16);
  table.set("finite", finite);
}

}  // namespace steptrain::cuda
