#pragma once

#include "cuda/runtime/stream.h"

namespace steptrain::cuda {

/// y = silu(gate)·up, all of one dtype; one launch.
void apply_swiglu(Stream& stream, const TensorView& gate, const TensorView& up, const TensorView& y);

}  // namespace steptrain::cuda
