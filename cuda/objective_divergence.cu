// The divergences from a teacher (core/objective_divergence.h). Of whole distributions a block reads a row, since
// a row is a vocabulary; of sampled tokens a thread does (cuda/objective.cuh).
#include "core/objective_divergence.h"
#include "cuda/objective.cuh"
#include "cuda/runtime/families.h"

namespace steptrain::cuda {
namespace {

using Sums = objective::Tally<objective::Divergence::kSums>;

/// The threads of a block that share a row.
struct Block {
  __device__ static int64_t rank() { return threadIdx.x; }
  __device__ static int64_t size() { return kThreads; }
  __device__ static double sum(double x) { return block_sum(x); }
  __device__ static int64_t first_largest(float value, int64_t index) {
    const float largest = block_max(value);
    // Where a logit is NaN no thread may have the largest: then any class will do.
    const double none = -9.0e15;
    const double first = -block_max(value == largest ? -static_cast<double>(index) : none);
    return first < -none ? static_cast<int64_t>(first) : 0;
  }
};

/// A block for each row.
__global__ void __launch_bounds__(kThreads)
    divergence_kernel(objective::Divergence items, int64_t n, Sums* partial, uint32_t* ticket,
                      FaultReporter) {
  const int64_t row = blockIdx.x;
  Sums tally = {};
  if (row < n) {
    if (items.skips(row)) {
      items.clear(row, Block());
    } else {
      items.add(row, tally, Block());
    }
  }
  if (threadIdx.x == 0) partial[row] = tally;
  join_in_last_block(items, partial, ticket);
}

void divergence(Stream& stream, const Args& args) {
  evaluate(stream, args.tensor[0][0], objective::Divergence::from(args), divergence_kernel, 1);
}

void sampled_divergence(Stream& stream, const Args& args) {
  evaluate(stream, args.tensor[0][0], objective::SampledDivergence::from(args));
}

}  // namespace

void register_objective_divergence(KernelTable& table) {
  table.set("divergence", divergence);
  table.set("sampled_divergence", sampled_divergence);
}

}  // namespace steptrain::cuda
