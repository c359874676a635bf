// The layout of a page, as forward.h reads it. A page holds one key tile of attention for each KV head: first
// the keys, unit by unit, so that neighbouring keys are contiguous (lanes are keys); then the values, kSteps
// keys to a row of units (lanes are elements of the head). Heads are padded to kPageWidth elements.
#pragma once

#include "cpu/attention/tile.h"

namespace steptrain::cpu::STEPTRAIN_ISA {

constexpr int64_t kPageWidth = 16;

/// Elements of one head of a page.
constexpr int64_t head_elements(int64_t size) {
  return 2 * kTile * round_up(size, kPageWidth);
}

/// Element offsets within one head of a page, for the operands that read it.
template <typename Operand>
struct PageHead {
  static constexpr int64_t kSteps = Operand::kSteps;
  int64_t width;  // of a head, padded

  explicit PageHead(int64_t size) : width(round_up(size, kPageWidth)) {}
  /// Element d of the key at `place`.
  int64_t key(int64_t place, int64_t d) const {
    return d / kSteps * kTile * kSteps + place * kSteps + d % kSteps;
  }
  int64_t value(int64_t place, int64_t d) const {
    return value_units(place, d) + (kSteps - 1 - place % kSteps);
  }
  /// The units of elements from d on that have the value at `place`.
  int64_t value_units(int64_t place, int64_t d) const {
    return kTile * width + place / kSteps * width * kSteps + d * kSteps;
  }
};

/// Heads in a page of `cache` [P,E] for heads of `size` elements.
/// Throws E_SHAPE unless they fill E exactly.
inline int64_t page_heads(const char* op, const TensorView& cache, int64_t size) {
  const int64_t each = head_elements(size);
  if (each == 0 || cache[1] == 0 || cache[1] % each != 0)
    throw Error("E_SHAPE",
                format("%s: a page holds %lld elements for each KV head of size %lld, which the %lld of the "
                       "cache's pages are no multiple of",
                       op, static_cast<long long>(each), static_cast<long long>(size),
                       static_cast<long long>(cache[1])));
  return cache[1] / each;
}

}  // namespace steptrain::cpu::STEPTRAIN_ISA
