// Moving and combining tensors of any shape. All outputs are `=` but axpy, which is `+=`. Arithmetic is f32,
// rounded once on the store: the bits are those of the CPU. One launch each; a thread takes eight
// neighbouring elements.
#include <cmath>

#include "core/error.h"
#include "cuda/convert.h"
#include "cuda/families.h"
#include "cuda/storage.cuh"

namespace steptrain::cuda {
namespace {

constexpr int kThreads = 256;

int64_t blocks_for(int64_t n) {
  return (n + kThreads * kEight - 1) / (kThreads * kEight);
}

/// y[i] = body(x[i], y[i]) on i < n; y is read only where the body says so.
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

template <typename T>
__global__ void add_kernel(const T* x, const T* y, T* z, int64_t n, bool wide) {
  const int64_t at = (int64_t{blockIdx.x} * kThreads + threadIdx.x) * kEight;
  if (at >= n) return;
  const int count = in_group(at, n);
  float a[kEight], b[kEight];
  load8(x + at, count, wide, a);
  load8(y + at, count, wide, b);
#pragma unroll
  for (int i = 0; i < kEight; i++) a[i] = a[i] + b[i];
  store8(z + at, count, wide, a);
}

template <typename T>
__global__ void fill_kernel(T* x, int64_t n, T value) {
  const int64_t block = int64_t{blockIdx.x} * kThreads * kEight;
#pragma unroll
  for (int i = 0; i < kEight; i++) {
    const int64_t at = block + i * kThreads + threadIdx.x;
    if (at < n) x[at] = value;
  }
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
    stream.launch(add_kernel<T>, blocks_for(x.numel()), kThreads, 0, x.as<T>(), y.as<T>(), z.as<T>(),
                  x.numel(), all_wide({x, y, z}));
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
}

}  // namespace steptrain::cuda
