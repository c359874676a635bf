// LoRA pairs of several adapters on experts: see linear_experts in core/ops.cc.
#pragma once

#include "cuda/gemm/groups.h"

namespace steptrain::cuda {

/// Row s of expert e takes pair adapter[s]·E + e of a [G·E,r,K] and b [G·E,N,r], with scale·scales[adapter[s]]; none for -1.
struct ExpertPairs {
  TensorView a, b, adapter, scales;
  int adapter_input = 0;  // its place among the op's inputs, for faults
  float scale = 1;
};

/// out[S,N], f32 = the pairs' part of y, 0 of a row that takes none. Two launches. Both factors, and the low-rank rows between
/// them, are rounded to the dtype of x.
void multiply_expert_pairs(Stream& stream, const TensorView& x, const ExpertPairs& pairs,
                           const Groups& groups, float* out);

}  // namespace steptrain::cuda
