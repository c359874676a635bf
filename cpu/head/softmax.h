// The online softmax of one row: sums over the logits seen so far, relative to a shift near their maximum.
#pragma once

#include <cmath>
#include <utility>

#include "cpu/head/tile.h"

namespace steptrain::cpu::STEPTRAIN_ISA {

/// The shift follows the maximum only when it lags by this much: sums that are e^8 times larger lose nothing
/// in f32, and most rescaling is saved.
constexpr float kSlack = 8.0f;

struct RowState {
  float shift = kPadding;     // subtracted from every scaled logit
  float mass = 0;             // Σ exp(z - shift)
  float moment = 0;           // Σ exp(z - shift)·(z - shift)
  float largest = -INFINITY;  // greatest unscaled logit
  int32_t argmax = 0;         // the first that has it
  float target = 0;           // unscaled logit of the target, once seen

  float log_sum() const { return std::log(mass); }
  float entropy() const { return log_sum() - moment / mass; }

  /// Moves the shift. Returns the factor by which earlier sums must be scaled.
  float rebase(float to) {
    const float factor = std::exp(shift - to);
    moment = factor * (moment + (shift - to) * mass);
    mass *= factor;
    shift = to;
    return factor;
  }

  /// Merges the state of later tokens into this one. Returns the factors by which the sums of this state and
  /// of `later` must be scaled.
  std::pair<float, float> merge(RowState later) {
    std::pair<float, float> factors{1, 1};
    if (later.shift > shift) {
      factors.first = rebase(later.shift);
    } else {
      factors.second = later.rebase(shift);
    }
    mass += later.mass;
    moment += later.moment;
    target += later.target;
    if (later.largest > largest) {
      largest = later.largest;
      argmax = later.argmax;
    }
    return factors;
  }

  /// Finds the maximum of row r of a tile that begins at token v0 and moves the shift if it must. Returns the
  /// factor by which earlier sums must be scaled.
  float raise(float* logits, int64_t panels, int64_t rows, int64_t r, int64_t v0, float inverse) {
    vf maxima = set1(-INFINITY);
    each_logit_vector(logits, panels, rows, r, [&](int64_t, float* z) { maxima = max(maxima, load(z)); });
    const float found = max(maxima);
    if (found > largest && found > kPadding) {  // kPadding: lanes past the last token
      largest = found;
      int64_t v = 0;
      while (logit_at(logits, rows, r, v) != found) v++;
      argmax = static_cast<int32_t>(v0 + v);
    }
    return found * inverse > shift + kSlack ? rebase(found * inverse) : 1.0f;
  }

  /// Adds row r of a tile. Writes exp(z - shift) to `weights`, if there are any.
  template <typename C>
  void add(float* logits, int64_t panels, int64_t rows, int64_t r, float inverse, C* weights) {
    const vf scale = set1(inverse), low = set1(-shift);
    vf total = zero(), product = zero();
    each_logit_vector(logits, panels, rows, r, [&](int64_t v, float* z) {
      // -infinity for an impossible token, which times its weight of 0 must be 0.
      const vf distance = max(set1(kPadding), fma(load(z), scale, low));
      const vf p = exp(distance);
      total = total + p;
      product = fma(p, distance, product);
      if (weights) store(weights + v, p);
    });
    mass += sum(total);
    moment += sum(product);
  }
};

}  // namespace steptrain::cpu::STEPTRAIN_ISA
