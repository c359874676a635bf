// What disentangled attention and its backward share: the buckets of distances, and which of them a tile uses.
// A tile of kRows queries by kTile keys has kRows + kTile - 1 distances, so at most as many buckets; they are
// neighbours, since buckets ascend with the distance in steps of 0 or 1. So the products with positions are
// tiles too, and a score takes the one that belongs to its distance.
#pragma once

#include "cpu/attention/gather.h"
#include "cpu/attention/problem.h"

namespace steptrain::cpu::STEPTRAIN_ISA {

constexpr int64_t kWindow = kRows + kTile;  // distances of a tile, and one place that is not used

/// The bucket of each distance i - j, checked.
struct Buckets {
  const int32_t* table;  // by |i - j|
  int64_t size;          // distances in the table
  int64_t rows;          // buckets in all, half of them for keys behind the query

  /// Throws E_SHAPE or E_RANGE.
  Buckets(const char* op, const TensorView& buckets, const TensorView& positions, const Problem& problem);

  int32_t of(int64_t distance) const {
    const int64_t away = table[std::min(std::abs(distance), size - 1)];
    return static_cast<int32_t>(std::clamp<int64_t>(rows / 2 + (distance < 0 ? -away : away), 0, rows - 1));
  }
};

/// The buckets of a tile: of distances first, first + step, … (step 1 or -1), each counted from the lowest.
struct BucketWindow {
  int64_t lowest, width;
  int32_t index[kWindow];

  BucketWindow(const Buckets& buckets, int64_t first, int64_t step) {
    const int64_t last = first + step * (kWindow - 2);
    lowest = buckets.of(std::min(first, last));
    width = buckets.of(std::max(first, last)) - lowest + 1;
    for (int64_t i = 0; i < kWindow - 1; i++)
      index[i] = buckets.of(first + step * i) - static_cast<int32_t>(lowest);
    index[kWindow - 1] = 0;
  }
};

}  // namespace steptrain::cpu::STEPTRAIN_ISA
