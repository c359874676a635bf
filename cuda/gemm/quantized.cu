// Quantised weights for products (cuda/gemm/quantized.h): their values in workspace. A thread takes eight features.
#include "cuda/gemm/quantized.cuh"

namespace steptrain::cuda {
namespace {

constexpr int kThreads = 256;

template <typename T>
__global__ void __launch_bounds__(kThreads)
    dequantize_kernel(const __grid_constant__ Factor weight, const __grid_constant__ Nf4Levels nf4, T* y,
                      bool wide) {
  __shared__ float levels[16];
  if (threadIdx.x < 16) levels[threadIdx.x] = nf4.v[threadIdx.x];
  __syncthreads();
  const Factor& w = weight;
  const int64_t groups = (w.columns + kEight - 1) / kEight;
  const int64_t at = int64_t{blockIdx.x} * kThreads + threadIdx.x, row = at / groups;
  if (row >= w.rows) return;
  const int64_t column = at % groups * kEight;
  float v[kEight];
  quantized_values(w, load_quantized(w, row, column), levels, v);
  store8(y + row * w.columns + column, in_group(column, w.columns), wide, v);
}

}  // namespace

void dequantize(Stream& stream, const TensorView& weight, const TensorView& y) {
  const int64_t groups = weight[0] * ((weight[1] + kEight - 1) / kEight);
  by_storage(y.dtype, [&](auto t) {
    using T = decltype(t);
    stream.launch(dequantize_kernel<T>, (groups + kThreads - 1) / kThreads, kThreads, 0, factor(weight),
                  nf4_levels(), y.as<T>(), all_wide({y}, weight[1]));
  });
}

Factor weight_factor(Stream& stream, const TensorView& rows, const TensorView& weight, Layout layout) {
  if (weight.format == Format::none) return factor(weight);
  const bool streams = layout == Layout::forward && rows.dtype == DType::bf16 && rows[0] <= kQuantizedRows &&
                       readable_async(factor(rows)) && weight[1] % kEight == 0;
  if (streams) return factor(weight);
  TensorView values = weight;
  values.format = Format::none, values.packed = false, values.dtype = rows.dtype;
  values.data = stream.scratch.take<char>(values.bytes());
  dequantize(stream, weight, values);
  return factor(values);
}

}  // namespace steptrain::cuda
