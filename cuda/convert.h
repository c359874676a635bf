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

}  // namespace steptrain::cuda
