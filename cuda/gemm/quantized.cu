// Quantised weights for products (cuda/gemm/quantized.h): their values in workspace. A thread takes eight features.
#include "cuda/gemm/quantized.cuh"

namespace steptrain::cuda {
namespace {

constexpr int kThreads = 256;

/// Which rows: all from `first` on or, with `ids`, those.
struct Chosen {
  int64_t rows, first;
  const int32_t* ids;
  int argument;
  FaultReporter faults;
};

template <typename T>
__global__ void __launch_bounds__(kThreads)
    dequantize_kernel(const __grid_constant__ Factor weight, const __grid_constant__ Nf4Levels nf4,
                      const __grid_constant__ Chosen chosen, T* y, bool wide) {
  __shared__ float levels[16];
  if (threadIdx.x < 16) levels[threadIdx.x] = nf4.v[threadIdx.x];
  __syncthreads();
  const Factor& w = weight;
  const int64_t groups = (w.columns + kEight - 1) / kEight;
  const int64_t at = int64_t{blockIdx.x} * kThreads + threadIdx.x, row = at / groups;
  if (row >= chosen.rows) return;
  const int64_t from = chosen.ids ? chosen.ids[row] : chosen.first + row;
  if (chosen.ids && !index_holds(chosen.faults, chosen.argument, row, from, w.rows)) return;
  const int64_t column = at % groups * kEight;
  float v[kEight];
  quantized_values(w, load_quantized(w, from, column), levels, v);
  store8(y + row * w.columns + column, in_group(column, w.columns), wide, v);
}

void launch(Stream& stream, const TensorView& weight, const Chosen& chosen, const TensorView& y) {
  const int64_t groups = chosen.rows * ((weight[1] + kEight - 1) / kEight);
  by_storage(y.dtype, [&](auto t) {
    using T = decltype(t);
    stream.launch(dequantize_kernel<T>, (groups + kThreads - 1) / kThreads, kThreads, 0, factor(weight),
                  nf4_levels(), chosen, y.as<T>(), all_wide({y}, weight[1]));
  });
}

}  // namespace

void dequantize(Stream& stream, const TensorView& weight, const TensorView& y, int64_t first) {
  launch(stream, weight, {y[0], first, nullptr, 0, stream.faults}, y);
}

void dequantize_rows(Stream& stream, const TensorView& weight, const TensorView& ids, int argument,
                     const TensorView& y) {
  launch(stream, weight, {ids.numel(), 0, ids.as<int32_t>(), argument, stream.faults}, y);
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
