// Activations that more than one op computes.
#pragma once

namespace steptrain::cuda {

__device__ inline float sigmoid(float x) {
  return 1.0f / (1.0f + expf(-x));
}

/// silu(gate)·up.
__device__ inline float swiglu_value(float gate, float up) {
  return gate * sigmoid(gate) * up;
}

}  // namespace steptrain::cuda
