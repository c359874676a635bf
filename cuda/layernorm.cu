// LayerNorm over rows x[T,H] with the residual add in front fused, and its backward.
//   sum = x + residual, rounded to storage
//   y = (sum - mean)·rstd·weight + bias, rstd = 1/sqrt(mean((sum - mean)²) + eps)
// Overwritten: y, sum, mean, rstd, dx; accumulated into: dweight, dbias f32[H]. Launches, order of sums and in-place use are
// those of cuda/rmsnorm.cu; dweight and dbias take a launch each for their chunks.
#include "core/error.h"
#include "cuda/norm.cuh"
#include "cuda/runtime/families.h"

namespace steptrain::cuda {
namespace {

template <typename T, typename W>
__global__ void __launch_bounds__(kMaxThreads)
    layernorm_kernel(const T* x, const W* weight, const W* bias, const T* residual, T* y, T* sum, float* mean,
                     float* rstd, int size, float eps, bool wide) {
  const int64_t row = int64_t{blockIdx.x} * size;
  const auto load = [&](bool kept, int h, int count, float(&v)[kEight]) {
    // `sum` may share memory with x or residual, which then already hold it.
    if (kept) return load8(sum + row + h, count, wide, v);
    load_sum(x + row + h, residual ? residual + row + h : nullptr, count, wide, v);
  };
  const float length = static_cast<float>(size);
  float total = 0;
  each_group(size, [&](int h, int count) {
    float v[kEight];
    load(false, h, count, v);
    if (sum) store8(sum + row + h, count, wide, v);
#pragma unroll
    for (int i = 0; i < kEight; i++) total += v[i];
  });
  const float center = block_sum(total) / length;
  float squares = 0;
  each_group(size, [&](int h, int count) {
    float v[kEight];
    load(sum, h, count, v);
#pragma unroll
    for (int i = 0; i < kEight; i++) {
      const float gap = i < count ? v[i] - center : 0.0f;
      squares = fmaf(gap, gap, squares);
    }
  });
  const float scale = 1.0f / sqrtf(block_sum(squares) / length + eps);
  if (threadIdx.x == 0) {
    mean[blockIdx.x] = center;
    rstd[blockIdx.x] = scale;
  }
  each_group(size, [&](int h, int count) {
    float v[kEight], w[kEight], b[kEight] = {};
    load(sum, h, count, v);
    load8(weight + h, count, wide, w);
    if (bias) load8(bias + h, count, wide, b);
#pragma unroll
    for (int i = 0; i < kEight; i++) {
      const float out = (v[i] - center) * scale * w[i];
      v[i] = bias ? out + b[i] : out;
    }
    store8(y + row + h, count, wide, v);
  });
}

/// dx = rstd·(g - mean(g) - x̂·mean(g·x̂)) + dsum with g = dy·weight, x̂ = (sum - mean)·rstd, for the `chunk`
/// rows of the block; weights[block] = Σ dy·x̂ and biases[block] = Σ dy over them.
template <typename T, typename W>
__global__ void __launch_bounds__(kMaxThreads)
    layernorm_backward_kernel(const T* dy, const T* sum, const W* weight, const float* mean,
                              const float* rstd, const T* dsum, T* dx, float* weights, float* biases,
                              int64_t rows, int chunk, int size, bool wide) {
  const float ones[kEight] = {1, 1, 1, 1, 1, 1, 1, 1};
  const int64_t first = int64_t{blockIdx.x} * chunk;
  const int64_t last = first + chunk < rows ? first + chunk : rows;
  for (int64_t t = first; t < last; t++) {
    const int64_t row = t * size;
    const float scale = rstd[t], center = mean[t];
    float total = 0, dot = 0;
    const auto load = [&](int h, int count, float(&d)[kEight], float(&normal)[kEight], float(&w)[kEight]) {
      load8(dy + row + h, count, wide, d);
      load8(sum + row + h, count, wide, normal);
      load8(weight + h, count, wide, w);
#pragma unroll
      for (int i = 0; i < kEight; i++) normal[i] = (normal[i] - center) * scale;
    };
    each_group(size, [&](int h, int count) {
      float d[kEight], normal[kEight], w[kEight];
      load(h, count, d, normal, w);
#pragma unroll
      for (int i = 0; i < kEight; i++) {
        total = fmaf(d[i], w[i], total);
        dot = fmaf(d[i] * w[i], normal[i], dot);
      }
    });
    const float mean_g = block_sum(total) / static_cast<float>(size);
    const float mean_gx = block_sum(dot) / static_cast<float>(size);
    each_group(size, [&](int h, int count) {
      float d[kEight], normal[kEight], w[kEight], passed[kEight] = {};
      load(h, count, d, normal, w);
      if (dsum) load8(dsum + row + h, count, wide, passed);
      const int64_t at = int64_t{blockIdx.x} * size + h;
      if (weights) add_product(weights + at, count, wide, t == first, d, normal);
      if (biases) add_product(biases + at, count, wide, t == first, d, ones);
#pragma unroll
      for (int i = 0; i < kEight; i++) {
        const float out = (d[i] * w[i] - mean_g - normal[i] * mean_gx) * scale;
        d[i] = dsum ? out + passed[i] : out;
      }
      store8(dx + row + h, count, wide, d);
    });
  }
}

void layernorm(Stream& stream, const Args& args) {
  const auto [x, weight, bias, residual, y, sum, mean, rstd] = args.tensors<8>();
  const int64_t size = x[1];
  if (bias && bias.dtype != weight.dtype)
    throw Error("E_DTYPE", format("layernorm: bias must be %s like weight, got %s", name_of(weight.dtype),
                                  name_of(bias.dtype)));
  const bool wide = all_wide({x, weight, bias, residual, y, sum}, size);
  by_storage(x.dtype, [&](auto t) {
    by_storage(weight.dtype, [&](auto w) {
      using T = decltype(t);
      using W = decltype(w);
      stream.launch(layernorm_kernel<T, W>, x[0], threads_for(size), 0, x.as<T>(), weight.as<W>(),
                    bias.as<W>(), residual.as<T>(), y.as<T>(), sum.as<T>(), mean.as<float>(),
                    rstd.as<float>(), size, args.f(0), wide);
    });
  });
}

void layernorm_backward(Stream& stream, const Args& args) {
  const auto [dy, sum, weight, mean, rstd, dsum, dweight, dbias, dx] = args.tensors<9>();
  const int64_t rows = dy[0], size = dy[1];
  const int chunk = dweight || dbias ? kChunk : 1;
  const int64_t chunks = (rows + chunk - 1) / chunk;
  float* const weights = dweight ? stream.scratch.take<float>(chunks * size) : nullptr;
  float* const biases = dbias ? stream.scratch.take<float>(chunks * size) : nullptr;
  const bool wide = all_wide({dy, sum, weight, dsum, dx}, size);
  by_storage(dy.dtype, [&](auto t) {
    by_storage(weight.dtype, [&](auto w) {
      using T = decltype(t);
      using W = decltype(w);
      stream.launch(layernorm_backward_kernel<T, W>, chunks, threads_for(size), 0, dy.as<T>(), sum.as<T>(),
                    weight.as<W>(), mean.as<float>(), rstd.as<float>(), dsum.as<T>(), dx.as<T>(), weights,
                    biases, rows, chunk, size, wide);
    });
  });
  if (dweight) add_partials(stream, dweight, weights, chunks);
  if (dbias) add_partials(stream, dbias, biases, chunks);
}

}  // namespace

void register_layernorm(KernelTable& table) {
  table.set("layernorm", layernorm);
  table.set("layernorm_backward", layernorm_backward);
}

}  // namespace steptrain::cuda
