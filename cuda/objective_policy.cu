// The policy-gradient objectives (core/objective_policy.h). One launch each.
#include "core/objective_policy.h"
#include "cuda/objective.cuh"
#include "cuda/runtime/families.h"

namespace steptrain::cuda {
namespace {

void ppo(Stream& stream, const Args& args) {
  evaluate(stream, args.tensor[0][0], objective::Ppo::from(args));
}

struct CountedVerdicts : objective::VerdictConstraint {
  const double* counts = nullptr;  // [parts][2], rows of each label, of count_labels_kernel; or null
  int parts = 0;

  /// Every block does the count itself, which saves a launch, or adds the counts of parts of the rows.
  __device__ void prepare() {
    if (weights) return;
    double of[2] = {};
    if (counts) {
      for (int i = static_cast<int>(threadIdx.x); i < parts; i += kThreads)
        of[0] += counts[2 * i], of[1] += counts[2 * i + 1];
    } else {
      for (int64_t i = threadIdx.x; i < rows; i += kThreads) {
        of[0] += labels[i] == 0 ? 1 : 0;
        of[1] += labels[i] == 1 ? 1 : 0;
      }
    }
    count[0] = block_sum(of[0]);
    count[1] = block_sum(of[1]);
  }
};

constexpr int64_t kCountedRows = 8 * kThreads, kCountedParts = 16;

__global__ void __launch_bounds__(kThreads)
    count_labels_kernel(const int32_t* labels, int64_t rows, double* counts) {
  const int64_t begin = blockIdx.x * kCountedRows,
                end = begin + kCountedRows < rows ? begin + kCountedRows : rows;
  double of[2] = {};
#pragma unroll 4
  for (int64_t i = begin + threadIdx.x; i < end; i += kThreads) {
    of[0] += labels[i] == 0 ? 1 : 0;
    of[1] += labels[i] == 1 ? 1 : 0;
  }
  of[0] = block_sum(of[0]);
  of[1] = block_sum(of[1]);
  if (threadIdx.x < 2) counts[2 * blockIdx.x + threadIdx.x] = threadIdx.x == 0 ? of[0] : of[1];
}

void verdict_constraint(Stream& stream, const Args& args) {
  CountedVerdicts items{objective::VerdictConstraint::from(args)};
  const int64_t parts = (items.rows + kCountedRows - 1) / kCountedRows;
  // Counts are exact in any order, so the bits are those of one launch.
  if (!items.weights && parts > kCountedParts) {
    double* const counts = stream.scratch.take<double>(2 * parts);
    stream.launch(count_labels_kernel, parts, kThreads, 0, items.labels, items.rows, counts);
    items.counts = counts, items.parts = static_cast<int>(parts);
  }
  evaluate(stream, items.rows, items);
}

}  // namespace

void register_objective_policy(KernelTable& table) {
  table.set("ppo", ppo);
  table.set("verdict_constraint", verdict_constraint);
}

}  // namespace steptrain::cuda
