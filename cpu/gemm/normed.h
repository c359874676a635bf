// The RMSNorm in front of a product: rows in workspace, with the bits of rmsnorm.
#pragma once

#include "cpu/norm.h"
#include "cpu/runtime/stream.h"

namespace steptrain::cpu::STEPTRAIN_ISA {

/// RMSNorm(x)·weight; x itself without a weight.
template <typename T>
TensorView normed(Stream& stream, const TensorView& x, const TensorView& weight, float eps) {
  if (!weight) return x;
  TensorView y = x;
  y.data = stream.scratch.take<T>(x.numel());
  const int64_t size = x[1];
  by_storage(weight.dtype, [&](auto tag) {
    using W = decltype(tag);
    by_rows(stream, x[0], kNormRows, [&](int64_t first, int64_t last, int) {
      for (int64_t t = first; t < last; t++)
        rmsnorm_row(x.as<T>() + t * size, weight.as<W>(), y.as<T>() + t * size, size, eps);
    });
  });
  return y;
}

}  // namespace steptrain::cpu::STEPTRAIN_ISA
