// Policy-gradient objectives over weighted rows: PPO with its value, KL and entropy terms (tokens: PPO, GRPO;
// sequences: GSPO, RLOO), and the StepAMC constraint on the verdict. Rows and sums in f64, sums in index
// order; all outputs are `=`. A row of weight 0 is not read and gets gradient 0.
//
// The ratio d = exp(logprobs - old_logprobs) and the k3 estimate take the difference held within ±20, where
// their gradient ends as that of the held function: a token whose probability moved by a factor of 5e8 moves
// no weight. Non-finite inputs are not held: they make loss, gradient and statistics NaN and are counted.
#include "cpu/objective.h"

#include "cpu/runtime/families.h"

namespace steptrain::cpu::STEPTRAIN_ISA {
namespace {

constexpr double kLargestLogRatio = 20;

double hold(double log_ratio) {
  return std::clamp(log_ratio, -kLargestLogRatio, kLargestLogRatio);
}

double square(double x) {
  return x * x;
}

void require(bool condition, const char* message) {
  if (!condition) throw Error("E_RANGE", message);
}

/// logprobs, old_logprobs, advantages, weights [R], ref_logprobs?, entropy?, values?, old_values?, returns?
/// [R]
/// -> loss [1], dlogprobs [R], dentropy?, dvalues? [R], stats [12]
void ppo(Stream& stream, const Args& args) {
  const auto [logprobs, old_logprobs, advantages, weights, ref_logprobs, entropies, values, old_values,
              returns, loss, dlogprobs, dentropy, dvalues, stats] = args.tensors<14>();
  const double clip_low = 1 - args.d(0), clip_high = 1 + args.d(1), kl_coef = args.d(2),
               entropy_coef = args.d(4), vf_coef = args.d(5), value_clip = args.d(6);
  const int64_t kl = args.i(3);
  require(kl_coef == 0 || (ref_logprobs && kl >= 1 && kl <= 3),
          "ppo: kl_coef needs ref_logprobs and kl 1, 2 or 3");
  require(entropy_coef == 0 || entropies, "ppo: entropy_coef needs entropy");
  require(!dentropy || entropies, "ppo: dentropy needs entropy");
  require(!dvalues || values, "ppo: dvalues needs values");
  require(!values || returns, "ppo: values need returns");
  require(!values || value_clip <= 0 || old_values, "ppo: value_clip needs old_values");

  const float* lp = logprobs.as<float>();
  const float* old = old_logprobs.as<float>();
  const float* advantage = advantages.as<float>();
  const float* weight = weights.as<float>();
  const float* ref = ref_logprobs.as<float>();
  const float* entropy = entropies.as<float>();
  const float* value = values.as<float>();
  const float* old_value = value_clip > 0 ? old_values.as<float>() : nullptr;
  const float* target = returns.as<float>();
  float* glp = dlogprobs.as<float>();
  float* gentropy = dentropy.as<float>();
  float* gvalue = dvalues.as<float>();

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
  auto total = tally_rows<kSums>(stream, logprobs[0], [=](int64_t i, auto& tally) {
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
    tally[kNonFinite] += std::isnan(w) ? 1 : 0;

    const double change = static_cast<double>(lp[i]) - old[i], held = hold(change);
    const double ratio = std::exp(held);
    const double plain = -advantage[i] * ratio;
    const double clipped = -advantage[i] * std::clamp(ratio, clip_low, clip_high);
    double slope = plain >= clipped && held == change ? plain : 0;
    tally[kPolicy] += w * std::max(plain, clipped);
    tally[kClipped] += ratio < clip_low || ratio > clip_high ? w : 0;
    tally[kOldK3] += w * (std::expm1(held) - held);
    tally[kRatio] += w * ratio;
    tally.raise(ratio);

    if (ref) {
      const double k1 = static_cast<double>(lp[i]) - ref[i], kept = hold(k1);
      const double k3 = std::expm1(-kept) + kept;
      tally[kK1] += w * k1;
      tally[kK3] += w * k3;
      tally[kKl] += w * (kl == 1 ? k1 : kl == 2 ? 0.5 * square(k1) : k3);
      slope += kl_coef * (kl == 1 ? 1 : kl == 2 ? k1 : kept == k1 ? -std::expm1(-k1) : 0);
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
            old_value[i] + std::clamp(moved, -value_clip, value_clip) - static_cast<double>(target[i]);
        if (square(clipped_error) > worst) {
          worst = square(clipped_error);
          value_slope = std::abs(moved) > value_clip ? 0 : error;
        }
        tally[kValueClipped] += std::abs(moved) > value_clip ? w : 0;
      }
      tally[kValue] += w * 0.5 * worst;
      if (gvalue) gvalue[i] = static_cast<float>(w * vf_coef * value_slope);
    }
  });

  loss.as<float>()[0] = static_cast<float>(total[kPolicy] + kl_coef * total[kKl] -
                                           entropy_coef * total[kEntropy] + vf_coef * total[kValue]);
  float* s = stats.as<float>();
  for (size_t k = 0; k <= kRatio; k++) s[k] = mean_of(total[k], total[kWeight]);
  s[9] = static_cast<float>(total.largest);
  s[10] = static_cast<float>(total[kWeight]);
  s[11] = static_cast<float>(total[kNonFinite]);
}

/// positive, negative, labels [R], weights? [R] -> loss [1], dpositive, dnegative [R], stats [8]
void verdict_constraint(Stream& stream, const Args& args) {
  const auto [positive, negative, labels, weights, loss, dpositive, dnegative, stats] = args.tensors<8>();
  enum Form { kClassBalanced, kTwoWords, kFullVocabulary, kMass, kMargin };
  const int64_t form = args.i(0), rows = labels[0];
  const double margin = args.d(1);
  require(form >= kClassBalanced && form <= kMargin, "verdict_constraint: form must be 0 to 4");

  const int32_t* label = labels.as<int32_t>();
  const float* weight = weights.as<float>();
  const std::array<const float*, 2> word{negative.as<float>(), positive.as<float>()};
  const std::array<float*, 2> gradient{dnegative.as<float>(), dpositive.as<float>()};
  std::array<double, 2> count{};
  for (int64_t i = 0; i < rows; i++) {
    if (weight && weight[i] == 0) continue;
    if (label[i] != 0 && label[i] != 1) {
      throw Error("E_RANGE", format("verdict_constraint: labels[%lld] is %d, expected 0 or 1",
                                    static_cast<long long>(i), label[i]));
    }
    count[static_cast<size_t>(label[i])] += 1;
  }

  enum { kLoss, kLosses, kRight = kLosses + 2, kProbability = kRight + 2, kNonFinite, kSums };
  auto total = tally_rows<kSums>(stream, rows, [=](int64_t i, auto& tally) {
    gradient[0][i] = gradient[1][i] = 0;
    if (weight && weight[i] == 0) return;
    const size_t y = static_cast<size_t>(label[i]);
    const double right = word[y][i], wrong = word[1 - y][i];
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
    gradient[y][i] = static_cast<float>(w * dright);
    gradient[1 - y][i] = static_cast<float>(w * dwrong);
    tally[kLoss] += w * term;
    tally[kLosses + y] += term + bad;
    tally[kRight + y] += lead > 0 ? 1 : 0;
    tally[kProbability] += p + bad;
    tally[kNonFinite] += std::isnan(bad) ? 1 : 0;
  });

  loss.as<float>()[0] = static_cast<float>(total[kLoss]);
  float* s = stats.as<float>();
  s[0] = mean_of(total[kLosses + 1], count[1]);
  s[1] = mean_of(total[kLosses], count[0]);
  s[2] = mean_of(total[kRight + 1], count[1]);
  s[3] = mean_of(total[kRight], count[0]);
  s[4] = static_cast<float>(count[1]);
  s[5] = static_cast<float>(count[0]);
  s[6] = mean_of(total[kProbability], count[0] + count[1]);
  s[7] = static_cast<float>(total[kNonFinite]);
}

}  // namespace

void register_objective_policy(KernelTable& table) {
  table.set("ppo", ppo);
  table.set("verdict_constraint", verdict_constraint);
}

}  // namespace steptrain::cpu::STEPTRAIN_ISA
