// Preference objectives: pairs of scores (pairwise) or of log-probs (dpo, orpo), and single items judged good
// or bad (kto). Items are responses or steps, already summed or averaged over their tokens (span_sum). One
// launch each (cuda/objective.cuh); all outputs are `=`. An item of weight 0 is not read and gets gradient 0;
// a non-finite one makes the loss and its gradient NaN.
#include "core/error.h"
#include "cuda/objective.cuh"
#include "cuda/runtime/families.h"

namespace steptrain::cuda {
namespace {

/// Above this a mean log-prob has odds that f32 cannot tell from certainty; orpo takes it as this.
constexpr double kLargestLogprob = -1e-6;

struct Term {
  double bad;  // 0, or NaN
  double loss, dchosen, drejected;
  double margin, chosen, rejected;  // as reported
};

/// The pairs' common frame: weighted loss and gradient, and the statistics accuracy, margin, chosen,
/// rejected. pair(i) gives the Term of an item.
template <typename Pair>
struct Pairs {
  enum { kLoss, kRight, kMargin, kChosen, kRejected, kWeight, kSums };
  Pair pair;
  int64_t n;
  const float* weight;
  float *loss, *gchosen, *grejected, *stats;

  __device__ void prepare() {}
  __device__ void operator()(int64_t i, Tally<kSums>& tally, const FaultReporter&) const {
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
  }
  __device__ void finish(const Tally<kSums>& total) const {
    loss[0] = static_cast<float>(total[kLoss]);
    for (int k = 0; k < 4; k++) stats[k] = mean_of(total[kRight + k], total[kWeight]);
  }
};

/// outputs: loss, dchosen, drejected, stats.
template <typename Pair>
void pairs(Stream& stream, int64_t n, const TensorView& weights, const TensorView (&outputs)[4],
           const Pair& pair) {
  tally_rows(stream, n,
             Pairs<Pair>{pair, n, weights.as<float>(), outputs[0].as<float>(), outputs[1].as<float>(),
                         outputs[2].as<float>(), outputs[3].as<float>()});
}

struct Pairwise {
  const float *c, *r;
  double margin, center;
  __device__ Term operator()(int64_t i) const {
    const double good = c[i], poor = r[i], sum = good + poor, lead = good - poor - margin;
    const double pull = sigmoid(-lead), centring = 2 * center * sum;
    return {nan_unless_finite(good, poor),
            center * sum * sum - log_sigmoid(lead),
            centring - pull,
            centring + pull,
            good - poor,
            good,
            poor};
  }
};

/// chosen, rejected [n], weights? [n] -> loss [1], dchosen, drejected [n], stats [4]
void pairwise(Stream& stream, const Args& args) {
  const auto [chosen, rejected, weights, loss, dchosen, drejected, stats] = args.tensors<7>();
  pairs(stream, chosen[0], weights, {loss, dchosen, drejected, stats},
        Pairwise{chosen.as<float>(), rejected.as<float>(), args.d(0), args.d(1)});
}

enum DpoKind { kSigmoid, kIpo, kHinge };

struct Dpo {
  const float *c, *r, *rc, *rr;
  double beta, smoothing, margin;
  int kind;
  __device__ Term operator()(int64_t i) const {
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
      term = fmax(0.0, 1 - h);
      slope = h < 1 ? -beta : 0;
    }
    return {nan_unless_finite(good, poor), term, slope, -slope, beta * delta, beta * good, beta * poor};
  }
};

/// chosen, rejected [n], ref_chosen?, ref_rejected?, weights? [n] -> loss [1], dchosen, drejected [n], stats
/// [4]
void dpo(Stream& stream, const Args& args) {
  const auto [chosen, rejected, ref_chosen, ref_rejected, weights, loss, dchosen, drejected, stats] =
      args.tensors<9>();
  const double beta = args.d(0);
  const int64_t kind = args.i(3);
  if (kind < kSigmoid || kind > kHinge) throw Error("E_RANGE", "dpo: kind must be 0, 1 or 2");
  if (!(beta > 0)) throw Error("E_RANGE", format("dpo: beta is %g, expected more than 0", beta));
  if (static_cast<bool>(ref_chosen) != static_cast<bool>(ref_rejected))
    throw Error("E_RANGE", "dpo: ref_chosen and ref_rejected come together or not at all");
  pairs(stream, chosen[0], weights, {loss, dchosen, drejected, stats},
        Dpo{chosen.as<float>(), rejected.as<float>(), ref_chosen.as<float>(), ref_rejected.as<float>(), beta,
            args.d(1), args.d(2), static_cast<int>(kind)});
}

struct Orpo {
  const float *c, *r;
  double beta;
  __device__ Term operator()(int64_t i) const {
    const double good = fmin(static_cast<double>(c[i]), kLargestLogprob),
                 poor = fmin(static_cast<double>(r[i]), kLargestLogprob);
    const double log_odds = good - log1m_exp(good) - (poor - log1m_exp(poor));
    const double pull = beta * sigmoid(-log_odds);
    // d log_odds / d logprob = 1 / (1 - e^logprob), and 0 where the log-prob is held.
    const double dgood = good < c[i] ? 0 : -1 / expm1(good);
    const double dpoor = poor < r[i] ? 0 : -1 / expm1(poor);
    return {nan_unless_finite(c[i], r[i]),
            -c[i] - beta * log_sigmoid(log_odds),
            -1 - pull * dgood,
            pull * dpoor,
            log_odds,
            c[i],
            r[i]};
  }
};

/// chosen, rejected [n] mean log-probs, weights? [n] -> loss [1], dchosen, drejected [n], stats [4]
void orpo(Stream& stream, const Args& args) {
  const auto [chosen, rejected, weights, loss, dchosen, drejected, stats] = args.tensors<7>();
  pairs(stream, chosen[0], weights, {loss, dchosen, drejected, stats},
        Orpo{chosen.as<float>(), rejected.as<float>(), args.d(0)});
}

struct KtoReference {
  static constexpr int kSums = 1;
  const float *policy, *ref;
  int64_t n;
  float* z0;

  __device__ void prepare() {}
  __device__ void operator()(int64_t i, Tally<kSums>& tally, const FaultReporter&) const {
    tally[0] += static_cast<double>(policy[i]) - ref[i];
  }
  __device__ void finish(const Tally<kSums>& total) const {
    z0[0] = mean_of(total[0], static_cast<double>(n));
  }
};

/// policy, ref [n] -> z0 [1]
void kto_reference(Stream& stream, const Args& args) {
  const auto [policy, ref, z0] = args.tensors<3>();
  tally_rows(stream, policy[0], KtoReference{policy.as<float>(), ref.as<float>(), policy[0], z0.as<float>()});
}

struct Kto {
  enum { kLoss, kReward, kCount = kReward + 2, kSums = kCount + 2 };
  const float *policy, *ref, *weight, *z0;
  const int32_t* label;
  float *loss, *gradient, *stats;
  double beta, lambda_d, lambda_u;
  bool apo_zero;

  __device__ void prepare() {}
  __device__ void operator()(int64_t i, Tally<kSums>& tally, const FaultReporter& faults) const {
    gradient[i] = 0;
    if (weight[i] == 0) return;
    if (!binary_holds(faults, 2, label, i)) return;
    const double given = z0[0];
    const double reference = apo_zero ? 0 : fmax(given, 0.0) + nan_unless_finite(given);
    const int y = label[i];
    const double sign = y ? 1 : -1, lambda = y ? lambda_d : lambda_u;
    const double w = weight[i] + nan_unless_finite(policy[i], ref[i]);
    const double ratio = static_cast<double>(policy[i]) - ref[i];
    const double h = sign * beta * (ratio - reference);
    gradient[i] = static_cast<float>(-w * lambda * sign * beta * sigmoid(h) * sigmoid(-h));
    tally[kLoss] += w * lambda * sigmoid(-h);
    tally[kReward] += y ? 0 : beta * ratio;
    tally[kReward + 1] += y ? beta * ratio : 0;
    tally[kCount] += y ? 0 : 1;
    tally[kCount + 1] += y ? 1 : 0;
  }
  __device__ void finish(const Tally<kSums>& total) const {
    loss[0] = static_cast<float>(total[kLoss]);
    stats[0] = mean_of(total[kReward + 1], total[kCount + 1]);
    stats[1] = mean_of(total[kReward], total[kCount]);
    stats[2] = static_cast<float>(total[kCount + 1]);
    stats[3] = static_cast<float>(total[kCount]);
  }
};

/// policy, ref, labels, weights [n], z0 [1] -> loss [1], dpolicy [n], stats [4]
void kto(Stream& stream, const Args& args) {
  const auto [policy, ref, labels, weights, z0, loss, dpolicy, stats] = args.tensors<8>();
  const int64_t kind = args.i(3);
  if (kind != 0 && kind != 1) throw Error("E_RANGE", "kto: kind must be 0 or 1");
  tally_rows(stream, policy[0],
             Kto{policy.as<float>(), ref.as<float>(), weights.as<float>(), z0.as<float>(),
                 labels.as<int32_t>(), loss.as<float>(), dpolicy.as<float>(), stats.as<float>(), args.d(0),
                 args.d(1), args.d(2), kind == 1});
}

}  // namespace

void register_objective_preference(KernelTable& table) {
  table.set("pairwise", pairwise);
  table.set("dpo", dpo);
  table.set("orpo", orpo);
  table.set("kto_reference", kto_reference);
  table.set("kto", kto);
}

}  // namespace steptrain::cuda
