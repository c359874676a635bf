// Quantised weights (core/quantized.h) in products.
#pragma once

#include "cuda/gemm/product.h"

namespace steptrain::cuda {

/// The rows of the most that kernels multiply by a weight as they dequantise it (cuda/gemm/few_rows_stream.cuh).
constexpr int64_t kQuantizedRows = 16;

/// A weight as a product of `rows` takes it: itself, where it is in floats or kernels of few rows read it; else its values, in
/// the dtype of activations, in workspace.
Factor weight_factor(Stream& stream, const TensorView& rows, const TensorView& weight, Layout layout);

/// y[N,K] = the values of a quantised weight. One launch.
void dequantize(Stream& stream, const TensorView& weight, const TensorView& y);

}  // namespace steptrain::cuda
