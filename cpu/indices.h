// Checks of index tensors, before anything is read through them.
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

/// Throws Error(E_RANGE) unless the borders of ranges start at 0, do not descend, and end at `total`.
inline void check_offsets(const char* op, const char* name, const TensorView& offsets, int64_t total) {
  const int32_t* at = offsets.as<int32_t>();
  const int64_t last = offsets[0] - 1;
  if (last < 0) throw Error("E_RANGE", format("%s: %s is empty, expected at least one 0", op, name));
  if (at[0] != 0) throw Error("E_RANGE", format("%s: %s[0] is %d, expected 0", op, name, at[0]));
  for (int64_t i = 0; i < last; i++) {
    if (at[i + 1] < at[i]) {
      throw Error("E_RANGE", format("%s: %s[%lld] is %d, below the %d before it", op, name,
                                    static_cast<long long>(i + 1), at[i + 1], at[i]));
    }
  }
  if (at[last] != total) {
    throw Error("E_RANGE", format("%s: %s ends at %d, expected %lld", op, name, at[last],
                                  static_cast<long long>(total)));
  }
}

}  // namespace steptrain::cpu
