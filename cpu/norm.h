// What the norms share: loads, stores and sums over a row, the residual add in front, and the order in which
// weight gradients are summed: within chunks of kNormChunk rows, then over the chunks in index order, whatever
// the thread count.
#pragma once

#include <algorithm>
#include <cmath>

#include "cpu/runtime/stream.h"
#include "cpu/simd.h"

namespace steptrain::cpu::STEPTRAIN_ISA {

constexpr int64_t kNormRows = 8;    // rows per task of a forward
constexpr int64_t kNormChunk = 64;  // rows whose dweight is one partial sum
constexpr int64_t kColumns = 512;   // columns per task that adds the partial sums
constexpr int kSums = 4;            // independent vector sums per row, added in index order

/// body(h, n) over vectors of [0, size): n is kLanes but for the last.
template <typename F>
inline void by_vector(int64_t size, F body) {
  int64_t h = 0;
  for (; h + kLanes <= size; h += kLanes) body(h, kLanes);
  if (h < size) body(h, static_cast<int>(size - h));
}
template <typename T>
inline vf load_at(const T* p, int64_t h, int n) {
  return n == kLanes ? load(p + h) : load(p + h, n);
}
template <typename T>
inline void store_at(T* p, int64_t h, vf x, int n) {
  n == kLanes ? store(p + h, x) : store(p + h, x, n);
}

/// Σ term(h, n) over vectors, in kSums interleaved sums. Lanes past the row must be zero.
template <typename F>
inline float row_sum(int64_t size, F term) {
  vf sums[kSums];
  for (vf& s : sums) s = zero();
  int64_t h = 0;
  for (; h + kSums * kLanes <= size; h += kSums * kLanes) {
    for (int i = 0; i < kSums; i++) sums[i] = sums[i] + term(h + i * kLanes, kLanes);
  }
  for (int i = 0; h < size; h += kLanes, i++)
    sums[i] = sums[i] + term(h, static_cast<int>(std::min<int64_t>(kLanes, size - h)));
  return sum((sums[0] + sums[1]) + (sums[2] + sums[3]));
}

/// y = RMSNorm(x)·weight of one row. Returns 1/sqrt(mean(x²) + eps).
template <typename T, typename W>
inline float rmsnorm_row(const T* x, const W* weight, T* y, int64_t size, float eps) {
  const float squares = row_sum(size, [&](int64_t h, int n) {
    const vf a = load_at(x, h, n);
    return a * a;
  });
  const float rstd = 1.0f / std::sqrt(squares / static_cast<float>(size) + eps);
  const vf scale = set1(rstd);
  by_vector(size,
            [&](int64_t h, int n) { store_at(y, h, load_at(x, h, n) * scale * load_at(weight, h, n), n); });
  return rstd;
}

/// x + residual: x itself, or `into` after it has been filled.
template <typename T>
inline const T* add_residual(const T* x, const T* residual, T* into, int64_t size) {
  if (!into) return x;
  by_vector(size, [&](int64_t h, int n) {
    const vf a = load_at(x, h, n);
    store_at(into, h, residual ? a + load_at(residual, h, n) : a, n);
  });
  return into;
}

/// A row per worker for x + residual, where no `sum` is asked for.
template <typename T>
inline T* sum_scratch(Stream& stream, const TensorView& residual, const TensorView& sum, int64_t size) {
  return residual && !sum ? stream.scratch.take<T>(stream.pool.threads() * size) : nullptr;
}

/// body(first, last, worker) over blocks of `rows` rows.
template <typename F>
void by_rows(Stream& stream, int64_t total, int64_t rows, F body) {
  stream.pool.region([&](Worker& worker) {
    for (int64_t first; (first = worker.next() * rows) < total;)
      body(first, std::min(total, first + rows), worker.index);
  });
}

/// target += Σ over chunks of partial[chunk], in index order, for columns [first, last).
inline void add_partials(float* target, const float* partial, int64_t chunks, int64_t size, int64_t first,
                         int64_t last) {
  for (int64_t chunk = 0; chunk < chunks; chunk++) {
    const float* row = partial + chunk * size;
    by_vector(last - first, [&](int64_t h, int n) {
      store_at(target, first + h, load_at(target, first + h, n) + load_at(row, first + h, n), n);
    });
  }
}

}  // namespace steptrain::cpu::STEPTRAIN_ISA
