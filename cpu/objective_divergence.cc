// The divergences from a teacher (core/objective_divergence.h). One region each.
#include "core/objective_divergence.h"
#include "cpu/objective.h"
#include "cpu/runtime/families.h"

namespace steptrain::cpu::STEPTRAIN_ISA {
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

}  // namespace steptrain::cpu::STEPTRAIN_ISA
