// Token losses: maximum likelihood and classification. All reduce in f64 over fixed chunks added in index
// order; outputs are `=`.
#include <algorithm>
#include <cmath>

#include "cpu/families.h"
#include "cpu/objective.h"

namespace steptrain::cpu::STEPTRAIN_ISA {
namespace {

void nll(Stream& stream, const Args& args) {
  const auto [logprobs, weights, loss, dlogprobs] = args.tensors<4>();
  const float* lp = logprobs.as<float>();
  const float* w = weights.as<float>();
  float* gradient = dlogprobs.as<float>();
  const auto sum = reduce_rows<1>(stream, logprobs[0], [=](int64_t i, auto& s) {
    gradient[i] = 0.0f - w[i];
    if (w[i] != 0) s[0] -= static_cast<double>(w[i]) * lp[i];
  });
  loss.as<float>()[0] = static_cast<float>(sum[0]);
}

}  // namespace

void register_objective(KernelTable& table) {
  table.set("nll", nll);
}

}  // namespace steptrain::cpu::STEPTRAIN_ISA
