// LoRA pairs of several adapters in one batch, side by side in a stack: see linear in core/ops.cc.
#pragma once

#include "cuda/gemm/product.h"

namespace steptrain::cuda {

struct Stack {
  TensorView a, b, adapter, ranks, scales;
  int adapter_input = 0, ranks_input = 0;  // their places among the op's inputs, for faults

  explicit operator bool() const { return static_cast<bool>(adapter); }
};

/// Checks what can be seen of the arguments without their values. `side`: with what the names of all but `adapter`
/// begin.
void check_stack(const char* op, const char* side, const Stack& stack, DType dtype);

/// Puts a pair into a stack from rank `first` on, where it fits.
void place_pair(Stream& stream, const TensorView& a, const TensorView& b, const TensorView& stack_a,
                const TensorView& stack_b, int64_t first);

/// out[T,N], f32 = scale·u·Bᵀ with u = x·Aᵀ, each row with the ranks of its own adapter; 0 where it has none.
/// Two launches. u is rounded to the dtype of x, as a single pair's is.
void multiply_stack(Stream& stream, const TensorView& x, const Stack& stack, float* out);

/// Sets the output of `product` to y; with a stack, to f32 in which what the stack gives lies already, which is returned:
/// finish_stack() must bring it to y after the product.
TensorView begin_stack(Stream& stream, const TensorView& x, const Stack& stack, Product& product,
                       const TensorView& y);
void finish_stack(Stream& stream, const TensorView& sum, const TensorView& y);

/// y = `product` + what the stack gives; without a stack y = `product`. Sets the product's output.
void multiply_with_stack(Stream& stream, const TensorView& x, const Stack& stack, Product product,
                         const TensorView& y);

}  // namespace steptrain::cuda
