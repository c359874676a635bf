#pragma once

#include "cuda/runtime/stream.h"

namespace steptrain::cuda {

/// RMSNorm(x)·weight in workspace, with the bits of rmsnorm; one launch.
TensorView normed(Stream& stream, const TensorView& x, const TensorView& weight, float eps);

}  // namespace steptrain::cuda
