// How a GPU evaluates an objective (core/objective.h): one launch over its items that writes gradients, loss
// and statistics. A block takes kItems items, its threads' sums are added in fixed order, and the last block
// to finish adds the blocks' in index order. Of many blocks another launch adds them, each thread every 256th,
// then threads. The bits depend on the inputs alone.
#pragma once

#include "core/objective.h"
#include "cuda/elementwise.cuh"
#include "cuda/reduce.cuh"

namespace steptrain::cuda {

constexpr int64_t kItems = 1024;
constexpr int64_t kJoinedBlocks = 32;  // by the last of them

/// Reports the label or target of item i.
template <typename Objective>
__device__ void refuse(const FaultReporter& faults, const Objective& items, int64_t i) {
  constexpr int kTensor = Objective::kChecked;
  if constexpr (Objective::kCheck == objective::Check::probability) {
    report(faults, FaultKind::probability, kTensor, i, 0, 1, __float_as_uint(items.labels[i]));
  } else if constexpr (Objective::kCheck == objective::Check::binary) {
    report(faults, FaultKind::binary, kTensor, i, items.labels[i], 1);
  } else {
    report(faults, FaultKind::outside, kTensor, i, items.targets[i], items.classes);
  }
}

/// The last of few blocks to arrive adds the sums of all in index order. All threads call this.
template <typename Objective>
__device__ void join_in_last_block(const Objective& items, objective::Tally<Objective::kSums>* partial,
                                   uint32_t* ticket) {
  if (gridDim.x > kJoinedBlocks || !last_block(ticket)) return;
  if (threadIdx.x != 0) return;
  objective::Tally<Objective::kSums> total = {};
  for (unsigned block = 0; block < gridDim.x; block++) {
    for (int k = 0; k < Objective::kSums; k++) total[k] += partial[block].sum[k];
    total.raise(partial[block].largest);
  }
  items.finish(total);
}

/// Every thread calls items.prepare() first, where there is one.
template <typename Objective>
__global__ void __launch_bounds__(kThreads)
    objective_kernel(Objective items, int64_t n, objective::Tally<Objective::kSums>* partial,
                     uint32_t* ticket, FaultReporter faults) {
  constexpr int N = Objective::kSums;
  if constexpr (requires { items.prepare(); }) items.prepare();
  objective::Tally<N> tally = {};
  const int64_t begin = int64_t{blockIdx.x} * kItems, end = begin + kItems < n ? begin + kItems : n;
  for (int64_t i = begin + threadIdx.x; i < end; i += kThreads) {
    items.clear(i);
    if (items.skips(i)) continue;
    if constexpr (Objective::kCheck != objective::Check::none) {
      if (!items.holds(i)) {
        refuse(faults, items, i);
        continue;
      }
    }
    items.add(i, tally);
  }
#pragma unroll
  for (int k = 0; k < N; k++) {
    const double sum = block_sum(tally[k]);
    if (threadIdx.x == 0) partial[blockIdx.x].sum[k] = sum;
  }
  const double largest = block_max(tally.largest);
  if (threadIdx.x == 0) partial[blockIdx.x].largest = largest;
  join_in_last_block(items, partial, ticket);
}

/// One block: joins the sums of `blocks` blocks.
template <typename Objective>
__global__ void __launch_bounds__(kThreads)
    objective_join_kernel(Objective items, objective::Tally<Objective::kSums>* partial, int blocks) {
  objective::Tally<Objective::kSums> total = {};
  for (int block = static_cast<int>(threadIdx.x); block < blocks; block += kThreads) {
#pragma unroll
    for (int k = 0; k < Objective::kSums; k++) total[k] += partial[block].sum[k];
    total.raise(partial[block].largest);
  }
#pragma unroll
  for (int k = 0; k < Objective::kSums; k++) total[k] = block_sum(total[k]);
  total.largest = block_max(total.largest);
  if (threadIdx.x == 0) items.finish(total);
}

template <typename Objective>
using ObjectiveKernel = void (*)(Objective items, int64_t n, objective::Tally<Objective::kSums>* partial,
                                 uint32_t* ticket, FaultReporter faults);

/// Launches `kernel` over n items, `of_block` of them in a block, and the join of many blocks.
template <typename Objective>
void evaluate(Stream& stream, int64_t n, const Objective& items,
              ObjectiveKernel<Objective> kernel = objective_kernel<Objective>, int64_t of_block = kItems) {
  const int64_t blocks = n == 0 ? 1 : (n + of_block - 1) / of_block;
  auto* const partial = stream.scratch.take<objective::Tally<Objective::kSums>>(blocks);
  stream.launch(kernel, blocks, kThreads, 0, items, n, partial, stream.ticket, stream.faults);
  if (blocks > kJoinedBlocks)
    stream.launch(objective_join_kernel<Objective>, 1, kThreads, 0, items, partial, static_cast<int>(blocks));
}

}  // namespace steptrain::cuda
