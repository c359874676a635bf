// What the objectives share: the deterministic sum over rows, the scalar functions of their losses.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>

#include "cpu/runtime/stream.h"

namespace steptrain::cpu::STEPTRAIN_ISA {

/// Sums over rows, and the largest of one quantity.
template <size_t N>
struct Tally {
  std::array<double, N> sum{};
  double largest = 0;

  double& operator[](size_t k) { return sum[k]; }
  void raise(double x) { largest = x > largest ? x : largest; }
};

/// Runs `row(i, tally)` for i in [0, n) in one region. Sums in f64 over fixed chunks, added in index order,
/// so that the number of threads changes nothing.
template <size_t N, typename Row>
Tally<N> tally_rows(Stream& stream, int64_t n, const Row& row) {
  constexpr int64_t kChunk = 1024;
  const int64_t chunks = (n + kChunk - 1) / kChunk;
  Tally<N>* partial = stream.scratch.take<Tally<N>>(chunks);
  stream.pool.run(chunks, [&](int64_t c) {
    Tally<N> tally;
    const int64_t end = std::min(n, (c + 1) * kChunk);
    for (int64_t i = c * kChunk; i < end; i++) row(i, tally);
    partial[c] = tally;
  });
  Tally<N> total;
  for (int64_t c = 0; c < chunks; c++) {
    for (size_t k = 0; k < N; k++) total[k] += partial[c][k];
    total.raise(partial[c].largest);
  }
  return total;
}

/// x / n, and 0 of nothing.
inline float mean_of(double x, double n) {
  return n == 0 ? 0.0f : static_cast<float>(x / n);
}

/// 0, or NaN where one of them is NaN or infinite: added to a row's loss and gradient, so that no saturating
/// function hides a broken input.
template <typename... T>
double nan_unless_finite(T... x) {
  return (... + (static_cast<double>(x) - static_cast<double>(x)));
}

inline double sigmoid(double x) {
  const double e = std::exp(-std::abs(x));
  return (x < 0 ? e : 1) / (1 + e);
}

inline double log_sigmoid(double x) {
  return std::min(x, 0.0) - std::log1p(std::exp(-std::abs(x)));
}

/// log(1 - e^x) for x < 0 without cancellation (Mächler 2012).
inline double log1m_exp(double x) {
  return x > -0.6931471805599453 ? std::log(-std::expm1(x)) : std::log1p(-std::exp(x));
}

}  // namespace steptrain::cpu::STEPTRAIN_ISA
