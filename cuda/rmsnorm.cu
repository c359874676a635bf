// RMSNorm over rows x[T,H] with the residual add in front fused, and its backward.
//   sum = x + residual, rounded to storage: the norm reads the rounded sum, as transformers does
//   y = sum·rstd·weight, rstd = 1/sqrt(mean(sum²) + eps)
// Overwritten: y, sum, rstd, dx; accumulated into: dweight f32[H]. Statistics and arithmetic in f32, y and dx are rounded
// once; sum and rstd may be absent. The forward, and the backward without dweight, take one launch with a block per row. With dweight a
// block takes kChunk rows and sums their dweight, and a second launch adds the chunks in index order. A row's
// bits depend on that row alone. An output may share memory with an input of the same shape.
#include "cuda/norm.cuh"
#include "cuda/norm.h"
#include "cuda/runtime/families.h"

namespace steptrain::cuda {
namespace {

template <typename T, typename W>
__global__ void __launch_bounds__(kMaxThreads)
    rmsnorm_kernel(const T* x, const W* weight, const T* residual, T* y, T* sum, float* rstd, int size,
                   float eps, bool wide) {
  take_turn();
  const int64_t row = int64_t{blockIdx.x} * size;
  const auto load = [&](int h, int count, float(&v)[kEight]) {
    load_sum(x + row + h, residual ? residual + row + h : nullptr, count, wide, v);
  };
  float squares = 0;
  each_group(size, [&](int h, int count) {
    float v[kEight];
    load(h, count, v);
    if (sum) store8(sum + row + h, count, wide, v);
#pragma unroll
    for (int i = 0; i < kEight; i++) squares = fmaf(v[i], v[i], squares);
  });
  squares = block_sum(squares);
  const float scale = inverse_rms(squares, size, eps);
  if (rstd && threadIdx.x == 0) rstd[blockIdx.x] = scale;
  each_group(size, [&](int h, int count) {
    float v[kEight], w[kEight];
    // `sum` may share memory with x or residual, which then already hold it.
    if (sum) {
      load8(sum + row + h, count, wide, v);
    } else {
      load(h, count, v);
    }
    load8(weight + h, count, wide, w);
#pragma unroll
    for (int i = 0; i < kEight; i++) v[i] = v[i] * scale * w[i];
    store8(y + row + h, count, wide, v);
  });
}

/// dx = rstd·(g - x̂·mean(g·x̂)) + dsum with g = dy·weight, x̂ = sum·rstd, for the `chunk` rows of the block;
/// partial[block] = Σ dy·x̂ over them.
template <typename T, typename W>
__global__ void __launch_bounds__(kMaxThreads)
    rmsnorm_backward_kernel(const T* dy, const T* sum, const W* weight, const float* rstd, const T* dsum,
                            T* dx, float* partial, int64_t rows, int chunk, int size, bool wide) {
  const int64_t first = int64_t{blockIdx.x} * chunk;
  const int64_t last = first + chunk < rows ? first + chunk : rows;
  for (int64_t t = first; t < last; t++) {
    const int64_t row = t * size;
    const float scale = rstd[t];
    float dot = 0;
    each_group(size, [&](int h, int count) {
      float d[kEight], s[kEight], w[kEight];
      load8(dy + row + h, count, wide, d);
      load8(sum + row + h, count, wide, s);
      load8(weight + h, count, wide, w);
#pragma unroll
      for (int i = 0; i < kEight; i++) dot = fmaf(d[i] * w[i], s[i] * scale, dot);
    });
    const float mean = block_sum(dot) / static_cast<float>(size);
    each_group(size, [&](int h, int count) {
      float d[kEight], s[kEight], w[kEight], passed[kEight] = {};
      load8(dy + row + h, count, wide, d);
      load8(sum + row + h, count, wide, s);
      load8(weight + h, count, wide, w);
      if (dsum) load8(dsum + row + h, count, wide, passed);
#pragma unroll
      for (int i = 0; i < kEight; i++) s[i] = s[i] * scale;
      if (partial) add_product(partial + int64_t{blockIdx.x} * size + h, count, wide, t == first, d, s);
#pragma unroll
      for (int i = 0; i < kEight; i++) {
        const float out = (d[i] * w[i] - s[i] * mean) * scale;
        d[i] = dsum ? out + passed[i] : out;
      }
      store8(dx + row + h, count, wide, d);
    });
  }
}

void launch_rmsnorm(Stream& stream, const std::array<TensorView, 6>& tensors, float eps) {
  const auto [x, weight, residual, y, sum, rstd] = tensors;
  const int64_t size = x[1];
  const bool wide = all_wide({x, weight, residual, y, sum}, size);
  by_storage(x.dtype, [&](auto t) {
    by_storage(weight.dtype, [&](auto w) {
      using T = decltype(t);
      using W = decltype(w);
      stream.launch_early({}, rmsnorm_kernel<T, W>, x[0], threads_for(size), 0, x.as<T>(), weight.as<W>(),
                          residual.as<T>(), y.as<T>(), sum.as<T>(), rstd.as<float>(), size, eps, wide);
    });
  });
}

void rmsnorm(Stream& stream, const Args& args) {
  launch_rmsnorm(stream, args.tensors<6>(), args.f(0));
}

void rmsnorm_backward(Stream& stream, const Args& args) {
  const auto [dy, sum, weight, rstd, dsum, dweight, dx] = args.tensors<7>();
  const int64_t rows = dy[0], size = dy[1];
  const int chunk = dweight ? kChunk : 1;
  const int64_t chunks = (rows + chunk - 1) / chunk;
  float* const partial = dweight ? stream.scratch.take<float>(chunks * size) : nullptr;
  const bool wide = all_wide({dy, sum, weight, dsum, dx}, size);
  by_storage(dy.dtype, [&](auto t) {
    by_storage(weight.dtype, [&](auto w) {
      using T = decltype(t);
      using W = decltype(w);
      stream.launch(rmsnorm_backward_kernel<T, W>, chunks, threads_for(size), 0, dy.as<T>(), sum.as<T>(),
                    weight.as<W>(), rstd.as<float>(), dsum.as<T>(), dx.as<T>(), partial, rows, chunk, size,
                    wide);
    });
  });
  if (dweight) add_partials(stream, dweight, partial, chunks);
}

}  // namespace

TensorView normed(Stream& stream, const TensorView& x, const TensorView& weight, float eps) {
  TensorView y = x;
  y.data = stream.scratch.take<char>(x.bytes());
  launch_rmsnorm(stream, {x, weight, {}, y, {}, {}}, eps);
  return y;
}

void register_rmsnorm(KernelTable& table) {
  table.set("rmsnorm", rmsnorm);
  table.set("rmsnorm_backward", rmsnorm_backward);
}

}  // namespace steptrain::cuda
