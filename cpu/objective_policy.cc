// The policy-gradient objectives (core/objective_policy.h). One region each.
#include "core/objective_policy.h"
#include "cpu/objective.h"
#include "cpu/runtime/families.h"

namespace steptrain::cpu::STEPTRAIN_ISA {
namespace {

void ppo(Stream& stream, const Args& args) {
  evaluate(stream, args.tensor[0][0], objective::Ppo::from(args));
}

void verdict_constraint(Stream& stream, const Args& args) {
  auto items = objective::VerdictConstraint::from(args);
  for (int64_t i = 0; i < items.rows; i++) {
    if (items.skips(i)) continue;
    if (!items.holds(i)) refuse(items, i);
    items.count[items.labels[i]] += 1;
  }
  evaluate(stream, items.rows, items);
}

}  // namespace

void register_objective_policy(KernelTable& table) {
  table.set("ppo", ppo);
  table.set("verdict_constraint", verdict_constraint);
}

}  // namespace steptrain::cpu::STEPTRAIN_ISA
