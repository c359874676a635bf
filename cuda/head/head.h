// What the files of the head share.
#pragma once

#include <cmath>

#include "core/error.h"
#include "cuda/runtime/stream.h"

namespace steptrain::cuda {

inline void check_temperature(const char* op, double temperature) {
  if (temperature > 0 && std::isfinite(temperature)) return;
  throw Error("E_RANGE", format("%s: temperature must be positive and finite, got %g", op, temperature));
}

}  // namespace steptrain::cuda
