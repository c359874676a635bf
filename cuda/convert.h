#pragma once

#include <cstdint>
#include <cstring>

#include "cuda/runtime/stream.h"

namespace steptrain::cuda {

/// y = x in y's dtype, element by element; one launch.
void convert(Stream& stream, const TensorView& x, const TensorView& y);

/// Nearest bf16, ties to even; NaN stays NaN.
inline bf16 host_bf16(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, 4);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return {static_cast<uint16_t>(bits >> 16 | 0x40)};
  return {static_cast<uint16_t>((bits + 0x7fffu + (bits >> 16 & 1)) >> 16)};
}

#ifdef __CUDACC__

/// The value of a half by its bits.
__device__ inline float half_to_float(uint32_t half) {
  const uint32_t sign = (half & 0x8000u) << 16, rest = (half & 0x7fffu) << 13;
  if (rest < 1u << 23) {  // zero, subnormal
    const float value = static_cast<float>(half & 0x3ffu) * 0x1p-24f;
    return sign ? -value : value;
  }
  // The exponent's bias goes from 15 to 127; that of infinity and NaN becomes all ones.
  return __uint_as_float((rest + ((rest >= 0x7c00u << 13 ? 224u : 112u) << 23)) | sign);
}

#endif

}  // namespace steptrain::cuda
