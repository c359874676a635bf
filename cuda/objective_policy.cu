// Policy-gradient objectives over weighted rows: PPO with its value, KL and entropy terms (tokens: PPO, GRPO;
// sequences: GSPO, RLOO), and the StepAMC constraint on the verdict. One launch each (cuda/objective.cuh);
// all outputs are `=`. A row of weight 0 is not read and gets gradient 0.
//
// The ratio d = exp(logprobs - old_logprobs) and the k3 estimate take the difference held within ±20, where
// their gradient ends as that of the held function. Non-finite inputs are not held: they make loss, gradient
// and statistics NaN and are counted.
#include "core/error.h"
#include "cuda/objective.cuh"
#include "cuda/runtime/families.h"

namespace steptrain::cuda {
namespace {

constexpr double kLargestLogRatio = 20;

__device__ inline double clamp(double x, double low, double high) {
  return x < low ? low : high < x ? high : x;
}
__device__ inline double hold(double log_ratio) {
  return clamp(log_ratio, -kLargestLogRatio, kLargestLogRatio);
}
__device__ inline double square(double x) {
  return x * x;
}

void require(bool condition, const char* message) {
  if (!condition) throw Error("E_RANGE", message);
}

struct Ppo {
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
  const float *lp, *old, *advantage, *weight, *ref, *entropy, *value, *old_value, *target;
  float *loss, *glp, *gentropy, *gvalue, *stats;
  double clip_low, clip_high, kl_coef, entropy_coef, vf_coef, value_clip;
  int kl;

  __device__ void prepare() {}
  __device__ void operator()(int64_t i, Tally<kSums>& tally, const FaultReporter&) const {
    glp[i] = 0;
    if (gentropy) gentropy[i] = 0;
    if (gvalue) gvalue[i] = 0;
    if (weight[i] == 0) return;

    double w = weight[i] + nan_unless_finite(weight[i], lp[i], old[i], advantage[i]);
    if (ref) w += nan_unless_finite(ref[i]);
    if (entropy) w += nan_unless_finite(entropy[i]);
    if (value) w += nan_unless_finite(value[i], target[i]);
    if (value && old_value) w += nan_unless_finite(old_value[i]);
    tally[kWeight] += weight[i];
    tally[kNonFinite] += isnan(w) ? 1 : 0;

    const double change = static_cast<double>(lp[i]) - old[i], held = hold(change);
    const double ratio = exp(held);
    const double plain = -advantage[i] * ratio;
    const double clipped = -advantage[i] * clamp(ratio, clip_low, clip_high);
    double slope = plain >= clipped && held == change ? plain : 0;
    tally[kPolicy] += w * (plain < clipped ? clipped : plain);
    tally[kClipped] += ratio < clip_low || ratio > clip_high ? w : 0;
    tally[kOldK3] += w * (expm1(held) - held);
    tally[kRatio] += w * ratio;
    tally.raise(ratio);

    if (ref) {
      const double k1 = static_cast<double>(lp[i]) - ref[i], kept = hold(k1);
      const double k3 = expm1(-kept) + kept;
      tally[kK1] += w * k1;
      tally[kK3] += w * k3;
      tally[kKl] += w * (kl == 1 ? k1 : kl == 2 ? 0.5 * square(k1) : k3);
      slope += kl_coef * (kl == 1 ? 1 : kl == 2 ? k1 : kept == k1 ? -expm1(-k1) : 0);
    }
    glp[i] = static_cast<float>(w * slope);
    if (entropy) tally[kEntropy] += w * entropy[i];
    if (gentropy) gentropy[i] = static_cast<float>(-w * entropy_coef);

    if (value) {
      const double error = static_cast<double>(value[i]) - target[i];
      double worst = square(error), value_slope = error;
      if (old_value) {
        const double moved = static_cast<double>(value[i]) - old_value[i];
        const double clipped_error =
            old_value[i] + clamp(moved, -value_clip, value_clip) - static_cast<double>(target[i]);
        if (square(clipped_error) > worst) {
          worst = square(clipped_error);
          value_slope = fabs(moved) > value_clip ? 0 : error;
        }
        tally[kValueClipped] += fabs(moved) > value_clip ? w : 0;
      }
      tally[kValue] += w * 0.5 * worst;
      if (gvalue) gvalue[i] = static_cast<float>(w * vf_coef * value_slope);
    }
  }
  __device__ void finish(const Tally<kSums>& total) const {
    loss[0] = static_cast<float>(total[kPolicy] + kl_coef * total[kKl] - entropy_coef * total[kEntropy] +
                                 vf_coef * total[kValue]);
    for (int k = 0; k <= kRatio; k++) stats[k] = mean_of(total[k], total[kWeight]);
    stats[9] = static_cast<float>(total.largest);
    stats[10] = static_cast<float>(total[kWeight]);
    stats[11] = static_cast<float>(total[kNonFinite]);
  }
};

/// logprobs, old_logprobs, advantages, weights [R], ref_logprobs?, entropy?, values?, old_values?, returns?
/// [R]
/// -> loss [1], dlogprobs [R], dentropy?, dvalues? [R], stats [12]
void ppo(Stream& stream, const Args& args) {
  const auto [logprobs, old_logprobs, advantages, weights, ref_logprobs, entropies, values, old_values,
              returns, loss, dlogprobs, dentropy, dvalues, stats] = args.tensors<14>();
  const double kl_coef = args.d(2), entropy_coef = args.d(4), value_clip = args.d(6);
  const int64_t kl = args.i(3);
  require(kl_coef == 0 || (ref_logprobs && kl >= 1 && kl <= 3),
          "ppo: kl_coef needs ref_logprobs and kl 1, 2 or 3");
  require(entropy_coef == 0 || entropies, "ppo: entropy_coef needs entropy");
  require(!dentropy || entropies, "ppo: dentropy needs entropy");
  require(!dvalues || values, "ppo: dvalues needs values");
  require(!values || returns, "ppo: values need returns");
  require(!values || value_clip <= 0 || old_values, "ppo: value_clip needs old_values");
  tally_rows(stream, logprobs[0],
             Ppo{logprobs.as<float>(),
                 old_logprobs.as<float>(),
                 advantages.as<float>(),
                 weights.as<float>(),
                 ref_logprobs.as<float>(),
                 entropies.as<float>(),
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
                 static_cast<int>(kl)});
}

enum Form { kClassBalanced, kTwoWords, kFullVocabulary, kMass, kMargin };

struct VerdictConstraint {
  enum {
    kLoss,
    kLosses,
    kRight = kLosses + 2,
    kProbability = kRight + 2,
    kNonFinite,
    kCount,
    kSums = kCount + 2
  };
  const float *negative, *positive, *weight;
  const int32_t* label;
  float *loss, *gnegative, *gpositive, *stats;
  int64_t rows;
  double margin;
  int form;
  double count[2];  // of the labels, where they decide the weights

  /// Every block counts for itself, which saves a launch.
  __device__ void prepare() {
    if (weight) return;
    double negatives = 0, positives = 0;
    for (int64_t i = threadIdx.x; i < rows; i += kThreads) {
      negatives += label[i] == 0 ? 1 : 0;
      positives += label[i] == 1 ? 1 : 0;
    }
    count[0] = block_sum(negatives);
    count[1] = block_sum(positives);
  }
  __device__ void operator()(int64_t i, Tally<kSums>& tally, const FaultReporter& faults) const {
    gnegative[i] = gpositive[i] = 0;
    if (weight && weight[i] == 0) return;
    if (!binary_holds(faults, 2, label, i)) return;
    const int y = label[i];
    const double right = y ? positive[i] : negative[i], wrong = y ? negative[i] : positive[i];
    const double bad = nan_unless_finite(right, wrong);
    const double w =
        (weight ? weight[i] : 1 / (form == kClassBalanced ? count[y] : count[0] + count[1])) + bad;
    const double lead = right - wrong, p = sigmoid(lead), q = sigmoid(-lead);
    double term = 0, dright = 0, dwrong = 0;
    if (form == kClassBalanced || form == kTwoWords) {
      term = -log_sigmoid(lead);
      dright = -q;
      dwrong = q;
    } else if (form == kFullVocabulary) {
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
    (y ? gpositive : gnegative)[i] = static_cast<float>(w * dright);
    (y ? gnegative : gpositive)[i] = static_cast<float>(w * dwrong);
    tally[kLoss] += w * term;
    tally[kLosses] += y ? 0 : term + bad;
    tally[kLosses + 1] += y ? term + bad : 0;
    tally[kRight] += !y && lead > 0 ? 1 : 0;
    tally[kRight + 1] += y && lead > 0 ? 1 : 0;
    tally[kProbability] += p + bad;
    tally[kNonFinite] += isnan(bad) ? 1 : 0;
    tally[kCount] += y ? 0 : 1;
    tally[kCount + 1] += y ? 1 : 0;
  }
  __device__ void finish(const Tally<kSums>& total) const {
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

/// positive, negative, labels [R], weights? [R] -> loss [1], dpositive, dnegative [R], stats [8]
void verdict_constraint(Stream& stream, const Args& args) {
  const auto [positive, negative, labels, weights, loss, dpositive, dnegative, stats] = args.tensors<8>();
  const int64_t form = args.i(0);
  require(form >= kClassBalanced && form <= kMargin, "verdict_constraint: form must be 0 to 4");
  tally_rows(stream, labels[0],
             VerdictConstraint{negative.as<float>(),
                               positive.as<float>(),
                               weights.as<float>(),
                               labels.as<int32_t>(),
                               loss.as<float>(),
                               dnegative.as<float>(),
                               dpositive.as<float>(),
                               stats.as<float>(),
                               labels[0],
                               args.d(1),
                               static_cast<int>(form),
                               {}});
}

}  // namespace

void register_objective_policy(KernelTable& table) {
  table.set("ppo", ppo);
  table.set("verdict_constraint", verdict_constraint);
}

}  // namespace steptrain::cuda
