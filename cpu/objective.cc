// The likelihood objectives (core/objective.h): rows of tokens, binary labels and classes. One region each.
#include "core/objective.h"
#include "cpu/objective.h"
#include "cpu/runtime/families.h"

namespace steptrain::cpu::STEPTRAIN_ISA {
namespace {

void nll(Stream& stream, const Args& args) {
  evaluate(stream, args.tensor[0][0], objective::Nll::from(args));
}

void bce(Stream& stream, const Args& args) {
  evaluate(stream, args.tensor[0][0], objective::Bce::from(args));
}

void cross_entropy(Stream& stream, const Args& args) {
  evaluate(stream, args.tensor[0][0], objective::CrossEntropy::from(args));
}

}  // namespace

void register_objective(KernelTable& table) {
  table.set("nll", nll);
  table.set("bce", bce);
  table.set("cross_entropy", cross_entropy);
}

}  // namespace steptrain::cpu::STEPTRAIN_ISA
