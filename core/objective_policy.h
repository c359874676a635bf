// Policy-gradient objectives over weighted rows, item by item (core/objective.h): PPO with its value, KL and
// entropy terms (tokens: PPO, GRPO; sequences: GSPO, RLOO), and the StepAMC constraint on the verdict. A row
// of weight 0 is not read and gets gradient 0.
//
// The loss of a ratio d and an advantage A is PPO's clipped -A·d; CISPO's -A·clip(d)·logprob, whose
// weight has no gradient; or SAPO's -A·(4/τ)·σ(τ·(d - 1)), with a τ for each sign of A.
//
// The ratio exp(logprobs - old_logprobs) and the k3 estimate take the difference clamped to ±20, with the
// gradient of the clamped function: a token whose probability moved by a factor of 5e8 moves no weight.
// Non-finite inputs are not clamped: they make loss, gradient and statistics NaN and are counted.
#pragma once

#include "core/error.h"
#include "core/objective.h"

namespace steptrain::objective {
namespace {

constexpr double kMaxLogRatio = 20;

STEPTRAIN_HOST_DEVICE inline double clamp_log_ratio(double log_ratio) {
  return clamp(log_ratio, -kMaxLogRatio, kMaxLogRatio);
}
STEPTRAIN_HOST_DEVICE inline double square(double x) {
  return x * x;
}
inline void require(bool condition, const char* message) {
  if (!condition) throw Error("E_RANGE", message);
}

struct Ppo {
  static constexpr const char* kName = "ppo";
  static constexpr Check kCheck = Check::none;
  enum Estimator { kByK1, kByK2, kByK3 };
  enum Surrogate { kClip, kCispo, kSapo };
  enum {
    kPolicy,
    kValue,
    kEntropy,
    kK1,
    kK3,
    kOldK3,
    kClipped,
    kValueClipped,
    kRatio,
    kWeight,
    kNonFinite,
    kKl,
    kSums
  };
  const float *logprobs, *old_logprobs, *advantages, *weights;          // [R]
  const float *ref_logprobs, *entropy, *values, *old_values, *returns;  // [R] or null
  float *loss, *dlogprobs, *dentropy, *dvalues, *stats;                 // [1], [R], [R]?, [R]?, [12]
  double clip_low, clip_high, kl_coef, entropy_coef, vf_coef, value_clip;
  int kl;         // Estimator
  int surrogate;  // Surrogate
  double tau_pos, tau_neg;

  static Ppo from(const Args& args) {
    const auto [logprobs, old_logprobs, advantages, weights, ref_logprobs, entropy, values, old_values,
                returns, loss, dlogprobs, dentropy, dvalues, stats] = args.tensors<14>();
    const double kl_coef = args.d(2), entropy_coef = args.d(4), value_clip = args.d(6);
    require(kl_coef == 0 || ref_logprobs, "ppo: kl_coef needs ref_logprobs");
    require(entropy_coef == 0 || entropy, "ppo: entropy_coef needs entropy");
    require(!dentropy || entropy, "ppo: dentropy needs entropy");
    require(!dvalues || values, "ppo: dvalues needs values");
    require(!values || returns, "ppo: values need returns");
    require(!values || value_clip <= 0 || old_values, "ppo: value_clip needs old_values");
    require(args.d(8) > 0 && args.d(9) > 0, "ppo: tau_pos and tau_neg are more than 0");
    return {logprobs.as<float>(),
            old_logprobs.as<float>(),
            advantages.as<float>(),
            weights.as<float>(),
            ref_logprobs.as<float>(),
            entropy.as<float>(),
            values.as<float>(),
            value_clip > 0 ? old_values.as<float>() : nullptr,
            returns.as<float>(),
            loss.as<float>(),
            dlogprobs.as<float>(),
            dentropy.as<float>(),
            dvalues.as<float>(),
            stats.as<float>(),
            1 - args.d(0),
            1 + args.d(1),
            kl_coef,
            entropy_coef,
            args.d(5),
            value_clip,
            static_cast<int>(args.i(3)),
            static_cast<int>(args.i(7)),
            args.d(8),
            args.d(9)};
  }
  STEPTRAIN_HOST_DEVICE void clear(int64_t i) const {
    dlogprobs[i] = 0;
    if (dentropy) dentropy[i] = 0;
    if (dvalues) dvalues[i] = 0;
  }
  STEPTRAIN_HOST_DEVICE bool skips(int64_t i) const { return weights[i] == 0; }
  STEPTRAIN_HOST_DEVICE void add(int64_t i, Tally<kSums>& tally) const {
    const float logprob = logprobs[i], old = old_logprobs[i], advantage = advantages[i];
    double w = weights[i] + nan_unless_finite(weights[i], logprob, old, advantage);
    if (ref_logprobs) w += nan_unless_finite(ref_logprobs[i]);
    if (entropy) w += nan_unless_finite(entropy[i]);
    if (values) w += nan_unless_finite(values[i], returns[i]);
    if (values && old_values) w += nan_unless_finite(old_values[i]);
    tally[kWeight] += weights[i];
    tally[kNonFinite] += is_nan(w) ? 1 : 0;

    const double change = static_cast<double>(logprob) - old, clamped = clamp_log_ratio(change);
    const double ratio = exp(clamped);
    const double plain = -advantage * ratio;
    const double clipped = -advantage * clamp(ratio, clip_low, clip_high);
    double term, slope;
    if (surrogate == kClip) {
      term = max_of(plain, clipped);
      slope = plain >= clipped && clamped == change ? plain : 0;
    } else if (surrogate == kCispo) {
      term = clipped * logprob;
      slope = clipped;
    } else {
      const double tau = advantage > 0 ? tau_pos : tau_neg, gate = tau * (ratio - 1);
      term = -advantage * 4 / tau * sigmoid(gate);
      slope = clamped == change ? 4 * plain * sigmoid(gate) * sigmoid(-gate) : 0;
    }
    tally[kPolicy] += w * term;
    tally[kClipped] += ratio < clip_low || ratio > clip_high ? w : 0;
    tally[kOldK3] += w * (expm1(clamped) - clamped);
    tally[kRatio] += w * ratio;
    tally.raise(ratio);

    if (ref_logprobs) {
      const double k1 = static_cast<double>(logprob) - ref_logprobs[i], bounded = clamp_log_ratio(k1);
      const double k3 = expm1(-bounded) + bounded;
      tally[kK1] += w * k1;
      tally[kK3] += w * k3;
      tally[kKl] += w * (kl == kByK1 ? k1 : kl == kByK2 ? 0.5 * square(k1) : k3);
      slope += kl_coef * (kl == kByK1 ? 1 : kl == kByK2 ? k1 : bounded == k1 ? -expm1(-k1) : 0);
    }
    dlogprobs[i] = static_cast<float>(w * slope);
    if (entropy) tally[kEntropy] += w * entropy[i];
    if (dentropy) dentropy[i] = static_cast<float>(-w * entropy_coef);
    if (values) add_value(i, w, tally);
  }
  /// 0.5·(value - return)², or that of the value clipped around the old one where it is larger.
  STEPTRAIN_HOST_DEVICE void add_value(int64_t i, double w, Tally<kSums>& tally) const {
    const double error = static_cast<double>(values[i]) - returns[i];
    double worst = square(error), slope = error;
    if (old_values) {
      const double moved = static_cast<double>(values[i]) - old_values[i];
      const double clipped_error =
          old_values[i] + clamp(moved, -value_clip, value_clip) - static_cast<double>(returns[i]);
      if (square(clipped_error) > worst) {
        worst = square(clipped_error);
        slope = fabs(moved) > value_clip ? 0 : error;
      }
      tally[kValueClipped] += fabs(moved) > value_clip ? w : 0;
    }
    tally[kValue] += w * 0.5 * worst;
    if (dvalues) dvalues[i] = static_cast<float>(w * vf_coef * slope);
  }
  STEPTRAIN_HOST_DEVICE void finish(const Tally<kSums>& total) const {
    loss[0] = static_cast<float>(total[kPolicy] + kl_coef * total[kKl] - entropy_coef * total[kEntropy] +
                                 vf_coef * total[kValue]);
    for (int k = 0; k <= kRatio; k++) stats[k] = mean_of(total[k], total[kWeight]);
    stats[9] = static_cast<float>(total.largest);
    stats[10] = static_cast<float>(total[kWeight]);
    stats[11] = static_cast<float>(total[kNonFinite]);
  }
};

/// With lead = log-prob of the right word - that of the wrong one: -log σ(lead), weighted by class or not;
/// -right; -log(e^right + e^wrong), the mass of both words; max(0, margin - lead).
struct VerdictConstraint {
  static constexpr const char* kName = "verdict_constraint";
  static constexpr Check kCheck = Check::binary;
  static constexpr int kChecked = 2;
  enum Form { kClassBalanced, kTwoWords, kFullVocabulary, kMass, kMargin, kClassBalancedFull };
  enum {
    kLoss,
    kLosses,
    kRight = kLosses + 2,
    kProbability = kRight + 2,
    kNonFinite,
    kCount,
    kSums = kCount + 2
  };
  const float *negative, *positive, *weights;  // [R], log-probs of the two words; weights may be null
  const int32_t* labels;                       // [R]
  float *loss, *dnegative, *dpositive, *stats;
  int64_t rows;
  double margin;
  int form;
  double count[2];  // rows of each label, which make the weights where none are given

  static VerdictConstraint from(const Args& args) {
    const auto [positive, negative, labels, weights, loss, dpositive, dnegative, stats] = args.tensors<8>();
    return {negative.as<float>(),
            positive.as<float>(),
            weights.as<float>(),
            labels.as<int32_t>(),
            loss.as<float>(),
            dnegative.as<float>(),
            dpositive.as<float>(),
            stats.as<float>(),
            labels[0],
            args.d(1),
            static_cast<int>(args.i(0)),
            {}};
  }
  STEPTRAIN_HOST_DEVICE void clear(int64_t i) const { dnegative[i] = dpositive[i] = 0; }
  STEPTRAIN_HOST_DEVICE bool skips(int64_t i) const { return weights && weights[i] == 0; }
  STEPTRAIN_HOST_DEVICE bool holds(int64_t i) const { return labels[i] == 0 || labels[i] == 1; }
  STEPTRAIN_HOST_DEVICE void add(int64_t i, Tally<kSums>& tally) const {
    const int y = labels[i];
    const double right = y ? positive[i] : negative[i], wrong = y ? negative[i] : positive[i];
    const double bad = nan_unless_finite(right, wrong);
    const bool by_class = form == kClassBalanced || form == kClassBalancedFull;
    const double w = (weights ? weights[i] : 1 / (by_class ? count[y] : count[0] + count[1])) + bad;
    const double lead = right - wrong, p = sigmoid(lead), q = sigmoid(-lead);
    double term = 0, dright = 0, dwrong = 0;
    if (form == kClassBalanced || form == kTwoWords) {
      term = -log_sigmoid(lead);
      dright = -q;
      dwrong = q;
    } else if (form == kFullVocabulary || form == kClassBalancedFull) {
      term = -right;
      dright = -1;
    } else if (form == kMass) {
      term = log_sigmoid(lead) - right;
      dright = -p;
      dwrong = -q;
    } else if (lead < margin) {
      term = margin - lead;
      dright = -1;
      dwrong = 1;
    }
    (y ? dpositive : dnegative)[i] = static_cast<float>(w * dright);
    (y ? dnegative : dpositive)[i] = static_cast<float>(w * dwrong);
    tally[kLoss] += w * term;
    tally[kLosses] += y ? 0 : term + bad;
    tally[kLosses + 1] += y ? term + bad : 0;
    tally[kRight] += !y && lead > 0 ? 1 : 0;
    tally[kRight + 1] += y && lead > 0 ? 1 : 0;
    tally[kProbability] += p + bad;
    tally[kNonFinite] += is_nan(bad) ? 1 : 0;
    tally[kCount] += y ? 0 : 1;
    tally[kCount + 1] += y ? 1 : 0;
  }
  STEPTRAIN_HOST_DEVICE void finish(const Tally<kSums>& total) const {
    loss[0] = static_cast<float>(total[kLoss]);
    const double negatives = total[kCount], positives = total[kCount + 1];
    stats[0] = mean_of(total[kLosses + 1], positives);
    stats[1] = mean_of(total[kLosses], negatives);
    stats[2] = mean_of(total[kRight + 1], positives);
    stats[3] = mean_of(total[kRight], negatives);
    stats[4] = static_cast<float>(positives);
    stats[5] = static_cast<float>(negatives);
    stats[6] = mean_of(total[kProbability], negatives + positives);
    stats[7] = static_cast<float>(total[kNonFinite]);
  }
};

}  // namespace
}  // namespace steptrain::objective
