// The gradient of the logits, shared by both forms of the head's backward.
#pragma once

#include "cpu/head/tile.h"

namespace steptrain::cpu::STEPTRAIN_ISA {

/// dz_v = (dlogprob·([v = target] - p_v) - dentropy·p_v·(log p_v + H)) / temperature.
struct Gradients {
  const float *dlogprobs, *dentropy, *lse, *entropy;
  const int32_t* targets;
  float inverse;

  /// dz of one row of a tile, to `dz` in order of the token.
  template <typename C>
  void row(int64_t row, float* logits, int64_t panels, int64_t rows, int64_t r, int64_t v0, int64_t n,
           C* dz) const {
    const float dl = dlogprobs[row] * inverse, dh = dentropy ? dentropy[row] * inverse : 0.0f;
    const vf scale = set1(inverse), low = set1(-lse[row]), minus_dl = set1(-dl), minus_dh = set1(-dh);
    const vf entropy_of = set1(entropy[row]);
    each_logit_vector(logits, panels, rows, r, [&](int64_t v, float* z) {
      const vf logp = max(set1(kPadding), fma(load(z), scale, low));  // as RowState::add
      store(dz + v, exp(logp) * fma(minus_dh, logp + entropy_of, minus_dl));
    });
    if (const int64_t t = targets[row] - v0; t >= 0 && t < n) {
      const float logp = std::max(kPadding, logit_at(logits, rows, r, t) * inverse - lse[row]);
      const float p = std::exp(logp);
      dz[t] = from_float<C>(dl * (1 - p) - dh * p * (logp + entropy[row]));
    }
  }
};

/// dx and dw of a trainable head: cpu/head/trainable.cc.
void head_trainable_backward(Stream& stream, const TensorView& x, const TensorView& w, const TensorView& dw,
                             const TensorView& dx, const Gradients& gradients);

}  // namespace steptrain::cpu::STEPTRAIN_ISA
