// The divergences from a teacher (core/objective_divergence.h). One launch each, a thread for each row.
#include "core/objective_divergence.h"
#include "cuda/objective.cuh"
#include "cuda/runtime/families.h"

namespace steptrain::cuda {
namespace {

void divergence(Stream& stream, const Args& args) {
  evaluate(stream, args.tensor[0][0], objective::Divergence::from(args));
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
