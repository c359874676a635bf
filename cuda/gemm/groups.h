// Products of groups, each of which has rows of its own, neighbours of one matrix, and a weight, one of several in one
// tensor: an expert's rows and its weight. Where a group begins stands in the GPU's memory alone.
#pragma once

#include "cuda/gemm/product.h"

namespace steptrain::cuda {

struct Groups {
  const int32_t* offsets = nullptr;  // [count + 1]: rows offsets[g] to offsets[g+1] - 1 are group g's
  int64_t count = 0;
  int64_t weights = 0;  // group g's is weight (g - first) mod weights
  int argument = 0;     // of the op are the offsets
  FaultReporter faults;
  int64_t first = 0;              // groups before it are left alone
  int64_t bare = 0;               // groups before it have no pair, group g has pair g - bare
  const float* scales = nullptr;  // [count - bare]: each pair's lora_scale; absent: the product's
};

/// `product` for each group, in one launch, and one for each f32 factor that is rounded. Layout::forward and input: `a`,
/// `lora_a`, the mask and the outputs have the rows of all groups, `b` all weights, one below the other, `lora_b` a factor
/// for each pair. Layout::weight: `a` and `b` have the depth of all groups, and the outputs are one below the other; those of
/// a group without rows are left alone. No bias and no residual.
/// An element's bits are those of product_bf16 by mma.sync or of product_f32, whatever other rows there are.
void multiply_groups(Stream& stream, DType activations, Layout layout, Product product, const Groups& groups);

/// The values of the groups' weights w[weights, N, K] as one factor, in workspace where they are quantised: in the dtype of the
/// activations, and of groups with rows alone.
Factor group_weights(Stream& stream, DType activations, const TensorView& w, const Groups& groups);

}  // namespace steptrain::cuda
