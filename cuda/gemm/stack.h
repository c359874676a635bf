// LoRA pairs of several adapters in one batch, side by side in a stack: see linear in core/ops.cc.
#pragma once

#include "cuda/runtime/stream.h"

namespace steptrain::cuda {

struct Stack {
  TensorView a, b, adapter, ranks, scales;

  explicit operator bool() const { return static_cast<bool>(adapter); }
};

/// Checks what can be seen of the arguments without their values.
void check_stack(const char* op, const Stack& stack, DType dtype, const TensorView& lora_a);

/// Puts a pair into a stack from rank `first` on, where it fits.
void place_pair(Stream& stream, const TensorView& a, const TensorView& b, const TensorView& stack_a,
                const TensorView& stack_b, int64_t first);

/// out[T,N], f32 = scale·u·Bᵀ with u = x·Aᵀ, each row with the ranks of its own adapter; 0 where it has none.
/// Two launches. u is rounded to the dtype of x, as a single pair's is.
void multiply_stack(Stream& stream, const TensorView& x, const Stack& stack, float* out);

}  // namespace steptrain::cuda
