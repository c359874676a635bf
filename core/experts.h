// What both devices check of linear_experts beyond its shapes.
#pragma once

#include "core/error.h"
#include "core/tensor.h"

namespace steptrain {

/// How many of the groups of `offsets`, the first ones, have no pair; all where there are none. Throws Error(E_SHAPE) where
/// groups are none of the experts of `w`, there are more pairs than groups, or scales or u have no pairs to be of.
inline int64_t groups_without_pair(const TensorView& offsets, const TensorView& w, const TensorView& lora_a,
                                   const TensorView& scales, const TensorView& u) {
  const int64_t groups = offsets[0] - 1, pairs = lora_a ? lora_a[0] : 0;
  if (w[0] == 0 ? groups != 0 : groups % w[0] != 0)
    throw Error(
        "E_SHAPE",
        format("linear_experts: offsets have %lld groups, expected a multiple of the %lld experts of w",
               static_cast<long long>(groups), static_cast<long long>(w[0])));
  if (scales && !lora_a)
    throw Error("E_SHAPE", "linear_experts: scales are the LoRA pairs'; pass lora_a and lora_b or no scales");
  if (pairs > groups)
    throw Error("E_SHAPE",
                format("linear_experts: lora_a has %lld pairs, expected at most the %lld groups of offsets",
                       static_cast<long long>(pairs), static_cast<long long>(groups)));
  if (u && pairs != groups)
    throw Error(
        "E_SHAPE",
        "linear_experts: u is the LoRA pairs'; pass lora_a and lora_b with a pair of each group, or no u");
  return groups - pairs;
}

}  // namespace steptrain
