// The layout of a page: for each KV head 64 rows of keys, then 64 rows of values. A row holds one token and is
// padded to a multiple of kPageWidth elements. A page has the same size on the CPU, but another layout.
#pragma once

#include <cstdint>

#include "core/error.h"
#include "core/tensor.h"

namespace steptrain::cuda {

constexpr int64_t kPageTokens = 64;
constexpr int64_t kPageWidth = 16;

constexpr int64_t page_width(int64_t size) {
  return (size + kPageWidth - 1) / kPageWidth * kPageWidth;
}

/// Heads in a page of `cache` [P,E] for heads of `size` elements.
/// Throws E_SHAPE unless they fill E exactly.
inline int64_t page_heads(const char* op, const TensorView& cache, int64_t size) {
  const int64_t each = 2 * kPageTokens * page_width(size);
  if (each == 0 || cache[1] == 0 || cache[1] % each != 0)
    throw Error("E_SHAPE",
                format("%s: a page holds %lld elements for each KV head of size %lld, which the %lld of the "
                       "cache's pages are no multiple of",
                       op, static_cast<long long>(each), static_cast<long long>(size),
                       static_cast<long long>(cache[1])));
  return cache[1] / each;
}

}  // namespace steptrain::cuda
