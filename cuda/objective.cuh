// What the objectives share: one launch over rows that writes gradients and sums up loss and statistics, and
// the scalar functions of their losses. Rows and sums in f64; a block takes kRows rows, its threads' sums are
// added in fixed order, and the last block to finish adds the blocks' in index order: the bits depend on the
// inputs alone.
#pragma once

#include "cuda/elementwise.cuh"
#include "cuda/reduce.cuh"

namespace steptrain::cuda {

constexpr int64_t kRows = 1024;

/// Sums over rows, and the largest of one quantity.
template <int N>
struct Tally {
  double sum[N];
  double largest;

  __device__ double& operator[](int k) { return sum[k]; }
  __device__ double operator[](int k) const { return sum[k]; }
  __device__ void raise(double x) {
    if (x > largest) largest = x;
  }
};

/// row.prepare() is called by every thread first, row(i, tally, faults) for each i < n, row.finish(total) by
/// one thread at the end.
template <typename Row>
__global__ void __launch_bounds__(kThreads)
    objective_kernel(Row row, int64_t n, Tally<Row::kSums>* partial, uint32_t* ticket, FaultReporter faults) {
  constexpr int N = Row::kSums;
  row.prepare();
  Tally<N> tally = {};
  const int64_t begin = int64_t{blockIdx.x} * kRows, end = begin + kRows < n ? begin + kRows : n;
  for (int64_t i = begin + threadIdx.x; i < end; i += kThreads) row(i, tally, faults);
#pragma unroll
  for (int k = 0; k < N; k++) {
    const double sum = block_sum(tally[k]);
    if (threadIdx.x == 0) partial[blockIdx.x].sum[k] = sum;
  }
  const double largest = block_max(tally.largest);
  if (threadIdx.x == 0) partial[blockIdx.x].largest = largest;
  if (!last_block(ticket)) return;
  if (threadIdx.x != 0) return;
  Tally<N> total = {};
  for (unsigned block = 0; block < gridDim.x; block++) {
    for (int k = 0; k < N; k++) total[k] += partial[block].sum[k];
    total.raise(partial[block].largest);
  }
  row.finish(total);
}

template <typename Row>
void tally_rows(Stream& stream, int64_t n, const Row& row) {
  const int64_t blocks = n == 0 ? 1 : (n + kRows - 1) / kRows;
  auto* const partial = stream.scratch.take<Tally<Row::kSums>>(blocks);
  stream.launch(objective_kernel<Row>, blocks, kThreads, 0, row, n, partial, stream.ticket, stream.faults);
}

/// x / n, and 0 of nothing.
__device__ inline float mean_of(double x, double n) {
  return n == 0 ? 0.0f : static_cast<float>(x / n);
}

/// 0, or NaN where one of them is NaN or infinite: added to a row's loss and gradient, so that no saturating
/// function hides a broken input.
template <typename... T>
__device__ double nan_unless_finite(T... x) {
  return (... + (static_cast<double>(x) - static_cast<double>(x)));
}

__device__ inline double sigmoid(double x) {
  const double e = exp(-fabs(x));
  return (x < 0 ? e : 1) / (1 + e);
}

__device__ inline double log_sigmoid(double x) {
  return fmin(x, 0.0) - log1p(exp(-fabs(x)));
}

/// log(1 - e^x) for x < 0 without cancellation (Mächler 2012).
__device__ inline double log1m_exp(double x) {
  return x > -0.6931471805599453 ? log(-expm1(x)) : log1p(-exp(x));
}

/// Whether labels[i] of the op's input `tensor` is 0 or 1; reports it where not.
__device__ inline bool binary_holds(const FaultReporter& faults, int tensor, const int32_t* labels,
                                    int64_t i) {
  if (labels[i] == 0 || labels[i] == 1) return true;
  report(faults, FaultKind::binary, tensor, i, labels[i], 1);
  return false;
}

}  // namespace steptrain::cuda
