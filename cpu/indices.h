// Range checks of index tensors, before anything is read through them.
#pragma once

#include <cstdint>

#include "core/error.h"
#include "core/tensor.h"

namespace steptrain::cpu {

/// Throws Error(E_RANGE) at the first of `indices` outside [0, limit).
inline void check_indices(const char* op, const char* name, const TensorView& indices, int64_t limit) {
  const int32_t* value = indices.as<int32_t>();
  for (int64_t i = 0, n = indices.numel(); i < n; i++) {
    if (value[i] >= 0 && value[i] < limit) continue;
    throw Error("E_RANGE", format("%s: %s[%lld] is %d, outside 0..%lld", op, name, static_cast<long long>(i),
                                  value[i], static_cast<long long>(limit - 1)));
  }
}

}  // namespace steptrain::cpu
