// The sum of a piece of a flat buffer over the processes of a job, in host memory and in the order that the caller gives.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "carriers/carrier.h"

namespace steptrain {

struct PieceSum {
  /// What this process adds: its sums over runs of shards. They are changed.
  std::vector<float*> rows;
  /// By rank how many rows there are of it.
  std::vector<int> counts;
  /// Where in the piece the part of each rank begins, which that rank sums; then the length of the piece.
  std::vector<int64_t> begins;
  /// The additions in their order: row i of rank r is number i · size + r, and the first of a pair takes the sum.
  std::vector<std::pair<int, int>> pairs;
  /// The row that has the sum then.
  int root = 0;
  /// The piece, which gets the sum where this process adds it or wants it.
  float* result = nullptr;
  /// By rank from where to where it wants the sum.
  std::vector<std::pair<int64_t, int64_t>> wanted;
  /// For what arrives; the same length in all processes, at least a float for each row of the others.
  float* scratch = nullptr;
  int64_t scratch_length = 0;
};

/// Throws Error E_CLUSTER, E_SHAPE.
void sum_across(const steptrain_carrier& carrier, const PieceSum& piece);

}  // namespace steptrain
