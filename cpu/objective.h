// What the objectives share: the deterministic sum over rows and the scalar functions of their losses.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>

#include "cpu/stream.h"

namespace steptrain::cpu::STEPTRAIN_ISA {

/// Sums of `row(i, sums)` over i in [0, n): in one region, in f64, fixed chunks added in index order, so that
/// the number of threads changes nothing.
template <int N, typename Row>
std::array<double, N> reduce_rows(Stream& stream, int64_t n, const Row& row) {
  constexpr int64_t kChunk = 2048;
  using Sums = std::array<double, N>;
  const int64_t chunks = (n + kChunk - 1) / kChunk;
  Sums* partial = stream.scratch.take<Sums>(chunks);
  stream.pool.run(chunks, [&](int64_t c) {
    Sums sums{};
    const int64_t end = std::min(n, (c + 1) * kChunk);
    for (int64_t i = c * kChunk; i < end; i++) row(i, sums);
    partial[c] = sums;
  });
  Sums total{};
  for (int64_t c = 0; c < chunks; c++) {
    for (size_t k = 0; k < N; k++) total[k] += partial[c][k];
  }
  return total;
}

}  // namespace steptrain::cpu::STEPTRAIN_ISA
