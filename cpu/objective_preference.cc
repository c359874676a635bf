// Preference objectives: pairs of scores (pairwise) or of log-probs (dpo, orpo), and single items judged good
// or bad (kto). Items are responses or steps, already summed or averaged over their tokens (span_sum). Items
// and sums in f64, sums in index order; all outputs are `=`. An item of weight 0 is not read and gets
// gradient 0; a non-finite one makes the loss and its gradient NaN.
#include "cpu/objective.h"

#include "cpu/runtime/families.h"

namespace steptrain::cpu::STEPTRAIN_ISA {
namespace {

/// Above this a mean log-prob has odds that f32 cannot tell from certainty; orpo takes it as this.
constexpr double kLargestLogprob = -1e-6;

struct Term {
  double bad;  // 0, or NaN
  double loss, dchosen, drejected;
  double margin, chosen, rejected;  // as reported
};

/// The pairs' common frame: weighted loss and gradient, and the statistics accuracy, margin, chosen,
/// rejected.
template <typename Pair>
void pairs(Stream& stream, int64_t n, const TensorView& weights, const std::array<TensorView, 4>& outputs,
           const Pair& pair) {
  const auto& [loss, dchosen, drejected, stats] = outputs;
  const float* weight = weights.as<float>();
  float* gchosen = dchosen.as<float>();
  float* grejected = drejected.as<float>();
  enum { kLoss, kRight, kMargin, kChosen, kRejected, kWeight, kSums };
  auto total = tally_rows<kSums>(stream, n, [&](int64_t i, auto& tally) {
    gchosen[i] = grejected[i] = 0;
    const double given = weight ? weight[i] : 1.0 / static_cast<double>(n);
    if (given == 0) return;
    const Term t = pair(i);
    const double w = given + t.bad;
    gchosen[i] = static_cast<float>(w * t.dchosen);
    grejected[i] = static_cast<float>(w * t.drejected);
    tally[kLoss] += w * t.loss;
    tally[kRight] += t.chosen > t.rejected ? w : 0;
    tally[kMargin] += w * t.margin;
    tally[kChosen] += w * t.chosen;
    tally[kRejected] += w * t.rejected;
    tally[kWeight] += given;
  });
  loss.as<float>()[0] = static_cast<float>(total[kLoss]);
  for (size_t k = 0; k < 4; k++) stats.as<float>()[k] = mean_of(total[kRight + k], total[kWeight]);
}

/// chosen, rejected [n], weights? [n] -> loss [1], dchosen, drejected [n], stats [4]
void pairwise(Stream& stream, const Args& args) {
  const auto [chosen, rejected, weights, loss, dchosen, drejected, stats] = args.tensors<7>();
  const double margin = args.d(0), center = args.d(1);
  const float* c = chosen.as<float>();
  const float* r = rejected.as<float>();
  pairs(stream, chosen[0], weights, {loss, dchosen, drejected, stats}, [=](int64_t i) -> Term {
    const double good = c[i], poor = r[i], sum = good + poor, lead = good - poor - margin;
    const double pull = sigmoid(-lead), centring = 2 * center * sum;
    return {nan_unless_finite(good, poor),
            center * sum * sum - log_sigmoid(lead),
            centring - pull,
            centring + pull,
            good - poor,
            good,
            poor};
  });
}

/// chosen, rejected [n], ref_chosen?, ref_rejected?, weights? [n] -> loss [1], dchosen, drejected [n], stats
/// [4]
void dpo(Stream& stream, const Args& args) {
  const auto [chosen, rejected, ref_chosen, ref_rejected, weights, loss, dchosen, drejected, stats] =
      args.tensors<9>();
  enum Kind { kSigmoid, kIpo, kHinge };
  const double beta = args.d(0), smoothing = args.d(1), margin = args.d(2);
  const int64_t kind = args.i(3);
  if (kind < kSigmoid || kind > kHinge) throw Error("E_RANGE", "dpo: kind must be 0, 1 or 2");
  if (!(beta > 0)) throw Error("E_RANGE", format("dpo: beta is %g, expected more than 0", beta));
  if (static_cast<bool>(ref_chosen) != static_cast<bool>(ref_rejected))
    throw Error("E_RANGE", "dpo: ref_chosen and ref_rejected come together or not at all");
  const float* c = chosen.as<float>();
  const float* r = rejected.as<float>();
  const float* rc = ref_chosen.as<float>();
  const float* rr = ref_rejected.as<float>();
  pairs(stream, chosen[0], weights, {loss, dchosen, drejected, stats}, [=](int64_t i) -> Term {
    const double good = static_cast<double>(c[i]) - (rc ? rc[i] : 0.0f);
    const double poor = static_cast<double>(r[i]) - (rr ? rr[i] : 0.0f);
    const double delta = good - poor, h = beta * delta - margin;
    double term, slope;  // of delta
    if (kind == kSigmoid) {
      term = -(1 - smoothing) * log_sigmoid(h) - smoothing * log_sigmoid(-h);
      slope = beta * (smoothing * sigmoid(h) - (1 - smoothing) * sigmoid(-h));
    } else if (kind == kIpo) {
      slope = 2 * (delta - 1 / (2 * beta));
      term = slope * slope / 4;
    } else {
      term = std::max(0.0, 1 - h);
      slope = h < 1 ? -beta : 0;
    }
    return {nan_unless_finite(good, poor), term, slope, -slope, beta * delta, beta * good, beta * poor};
  });
}

/// chosen, rejected [n] mean log-probs, weights? [n] -> loss [1], dchosen, drejected [n], stats [4]
void orpo(Stream& stream, const Args& args) {
  const auto [chosen, rejected, weights, loss, dchosen, drejected, stats] = args.tensors<7>();
  const double beta = args.d(0);
  const float* c = chosen.as<float>();
  const float* r = rejected.as<float>();
  pairs(stream, chosen[0], weights, {loss, dchosen, drejected, stats}, [=](int64_t i) -> Term {
    const double good = std::min<double>(c[i], kLargestLogprob),
                 poor = std::min<double>(r[i], kLargestLogprob);
    const double log_odds = good - log1m_exp(good) - (poor - log1m_exp(poor));
    const double pull = beta * sigmoid(-log_odds);
    // d log_odds / d logprob = 1 / (1 - e^logprob), and 0 where the log-prob is held.
    const double dgood = good < c[i] ? 0 : -1 / std::expm1(good);
    const double dpoor = poor < r[i] ? 0 : -1 / std::expm1(poor);
    return {nan_unless_finite(c[i], r[i]),
            -c[i] - beta * log_sigmoid(log_odds),
            -1 - pull * dgood,
            pull * dpoor,
            log_odds,
            c[i],
            r[i]};
  });
}

/// policy, ref [n] -> z0 [1]
void kto_reference(Stream& stream, const Args& args) {
  const auto [policy, ref, z0] = args.tensors<3>();
  const float* p = policy.as<float>();
  const float* r = ref.as<float>();
  auto total = tally_rows<1>(stream, policy[0],
                             [=](int64_t i, auto& tally) { tally[0] += static_cast<double>(p[i]) - r[i]; });
  z0.as<float>()[0] = mean_of(total[0], static_cast<double>(policy[0]));
}

/// policy, ref, labels, weights [n], z0 [1] -> loss [1], dpolicy [n], stats [4]
void kto(Stream& stream, const Args& args) {
  const auto [policy, ref, labels, weights, z0, loss, dpolicy, stats] = args.tensors<8>();
  const double beta = args.d(0);
  const std::array<double, 2> lambda{args.d(2), args.d(1)};
  const int64_t kind = args.i(3);
  if (kind != 0 && kind != 1) throw Error("E_RANGE", "kto: kind must be 0 or 1");
  const double given = z0.as<float>()[0];
  const double reference = kind == 1 ? 0 : std::max(given, 0.0) + nan_unless_finite(given);
  const float* p = policy.as<float>();
  const float* r = ref.as<float>();
  const int32_t* label = labels.as<int32_t>();
  const float* weight = weights.as<float>();
  float* gradient = dpolicy.as<float>();
  enum { kLoss, kReward, kCount = kReward + 2, kSums = kCount + 2 };
  auto total = tally_rows<kSums>(stream, policy[0], [=](int64_t i, auto& tally) {
    gradient[i] = 0;
    if (weight[i] == 0) return;
    if (label[i] != 0 && label[i] != 1) {
      throw Error("E_RANGE",
                  format("kto: labels[%lld] is %d, expected 0 or 1 (give weight 0 to skip an item)",
                         static_cast<long long>(i), label[i]));
    }
    const size_t y = static_cast<size_t>(label[i]);
    const double sign = y == 1 ? 1 : -1;
    const double w = weight[i] + nan_unless_finite(p[i], r[i]);
    const double ratio = static_cast<double>(p[i]) - r[i];
    const double h = sign * beta * (ratio - reference);
    gradient[i] = static_cast<float>(-w * lambda[y] * sign * beta * sigmoid(h) * sigmoid(-h));
    tally[kLoss] += w * lambda[y] * sigmoid(-h);
    tally[kReward + y] += beta * ratio;
    tally[kCount + y] += 1;
  });
  loss.as<float>()[0] = static_cast<float>(total[kLoss]);
  float* s = stats.as<float>();
  s[0] = mean_of(total[kReward + 1], total[kCount + 1]);
  s[1] = mean_of(total[kReward], total[kCount]);
  s[2] = static_cast<float>(total[kCount + 1]);
  s[3] = static_cast<float>(total[kCount]);
}

}  // namespace

void register_objective_preference(KernelTable& table) {
  table.set("pairwise", pairwise);
  table.set("dpo", dpo);
  table.set("orpo", orpo);
  table.set("kto_reference", kto_reference);
  table.set("kto", kto);
}

}  // namespace steptrain::cpu::STEPTRAIN_ISA
