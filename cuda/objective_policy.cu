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
  /// Every block does the count itself, which saves a launch.
  __device__ void prepare() {
    if (weights) return;
    double negatives = 0, positives = 0;
    for (int64_t i = threadIdx.x; i < rows; i += kThreads) {
      negatives += labels[i] == 0 ? 1 : 0;
      positives += labels[i] == 1 ? 1 : 0;
    }
    count[0] = block_sum(negatives);
    count[1] = block_sum(positives);
  }
};

void verdict_constraint(Stream& stream, const Args& args) {
  const CountedVerdicts items{objective::VerdictConstraint::from(args)};
  evaluate(stream, items.rows, items);
}

}  // namespace

void register_objective_policy(KernelTable& table) {
  table.set("ppo", ppo);
  table.set("verdict_constraint", verdict_constraint);
}

}  // namespace steptrain::cuda
