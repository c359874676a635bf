// Quantised weights (core/quantized.h) in products.
#pragma once

#include "cuda/gemm/product.h"

namespace steptrain::cuda {

/// The rows of the most that kernels multiply by a weight as they dequantise it (cuda/gemm/few_rows_stream.cuh).
constexpr int64_t kQuantizedRows = 16;

/// A weight as a product of `rows` takes it: itself, where it is in floats or kernels of few rows read it; else its values, in
/// the dtype of activations, in workspace.
Factor weight_factor(Stream& stream, const TensorView& rows, const TensorView& weight, Layout layout);

/// y = the values of rows of a quantised weight, from `first` on. One launch.
void dequantize(Stream& stream, const TensorView& weight, const TensorView& y, int64_t first = 0);

/// Row i of y = the values of row ids[i]; `argument` of the op are the ids. One launch.
void dequantize_rows(Stream& stream, const TensorView& weight, const TensorView& ids, int argument,
                     const TensorView& y);

}  // namespace steptrain::cuda
